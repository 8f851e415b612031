"""What a collector who is trusted with every value could do: for comparison only. Nothing on a device imports it.

hush asks devices for perturbed values because it wants no such collector. The price of that is seen beside what is
here: sensitivities of queries about a whole data set, and the Laplace and the Gaussian mechanism on their answers.
"""

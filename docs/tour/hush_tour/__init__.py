"""The tour: a chapter for each document that hush was created from, with every idea of it in running code.

A chapter is a marimo notebook, which is plain Python: prose and calls. It calls typed and tested modules, here and in
the rest of hush.
"""

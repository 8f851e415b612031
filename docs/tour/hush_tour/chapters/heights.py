"""The notebook on heights: a mean of noisy values, typical sensitivities, and bounds that hold."""

import marimo

app = marimo.App(width="medium", app_title="The mean height of people who keep their height")


@app.cell
def imports():

    import marimo as mo
    import numpy as np

    from hush_tour.drawing import heights as drawing
    from hush_tour.mixtures import HEIGHTS
    from hush_simulations.api.simulate import simulate
    from hush_tour.prose import Plot, Prose, table
    from hush_tour.sampled_sensitivity import best_plan, law_of_largest, plan, sampled

    rng = np.random.default_rng(2020)
    return HEIGHTS, Plot, Prose, best_plan, drawing, simulate, law_of_largest, mo, np, plan, rng, sampled, table


@app.cell
def opening(Prose):
    Prose("""
    # The mean height of people who keep their height

    A group of people would like to know their mean height, and none of them wants to tell it. So each adds random noise
    to the own height and tells the sum. No single number says much; the mean of many does, because the noise averages
    out. The document behind this chapter asks how much noise that takes, and answers with a *typical* sensitivity.
    This chapter repeats its numbers, shows what they do not promise, and does the same with bounds that hold.
    """)
    return


@app.cell
def population(HEIGHTS, Prose):
    Prose(f"""
    ## Who is asked

    Men are 178 ± 7 cm tall and women 162 ± 6.5 cm. In equal numbers they have a mean of μ = {HEIGHTS.mean:g} cm,
    and by σ² = ½(σ_M² + σ_F²) + ¼(μ_M − μ_F)² a standard deviation of σ = {HEIGHTS.sd:.2f} cm.
    """)
    return


@app.cell
def picture_of_population(Plot, drawing):
    Plot("Densities of the heights of men, of women, and of everybody, with μ ± σ.", drawing.of_population)
    return


@app.cell
def expected(HEIGHTS):
    expected_difference = HEIGHTS.mean_difference
    share_beyond_expected = HEIGHTS.share_farther_apart(expected_difference)
    return expected_difference, share_beyond_expected


@app.cell
def sampling(HEIGHTS, best_plan, law_of_largest, np, plan, rng, sampled):
    least = best_plan(0.05)
    rho_of_the_document = 0.0026025  # its code takes the wrong branch of Lambert's function, and loses nothing by it
    of_the_document = plan(0.05, rho_of_the_document)
    sampled_sensitivity, sampled_mean = sampled(HEIGHTS, of_the_document, rng)
    chance_of_less = law_of_largest(HEIGHTS, of_the_document.m, 43.77)
    differences = np.abs(HEIGHTS.draws(20_000, rng) - HEIGHTS.draws(20_000, rng))
    return chance_of_less, differences, least, of_the_document, sampled_mean, sampled_sensitivity


@app.cell
def typical(Prose, chance_of_less, expected_difference, least, of_the_document, sampled_mean, sampled_sensitivity):
    Prose(f"""
    ## A typical sensitivity

    The noise has to hide the difference that one person can make: the sensitivity. Here a data set is one height, so
    that the sensitivity is how far apart two heights can be. The document calls that infinite, because heights are not
    bounded, and takes what is typical instead: two random people are, on average,

    E|x − x′| = **{expected_difference:.2f} cm** apart,

    by a closed form, or by sampling (Rubinstein and Aldà 2017): draw m pairs, and take the k-th smallest difference.
    For γ = 0.05 the fewest pairs are m = {least.m}, of which the k = {least.k}-th is taken: the largest of them all.
    (The document's code takes m = {of_the_document.m}, k = {of_the_document.k}.) It prints a sensitivity of 43.77 cm
    and a mean difference of 12.22 cm; this run gives **{sampled_sensitivity:.2f} cm** and **{sampled_mean:.2f} cm**.
    The largest of so many differences varies: {100 * chance_of_less:.0f} % of all runs give less than 43.77.

    *Where the document says that the value obtained is approximately the expected one, that is true of the mean, 12.22,
    and not of the sensitivity that is used, 43.77.*
    """)
    return


@app.cell
def picture_of_differences(Plot, differences, drawing, expected_difference, sampled_sensitivity):
    marks = [(expected_difference, "expected"), (sampled_sensitivity, "sampled"), (100.0, "public bounds")]
    Plot(
        "Histogram and density of the difference of two random people, with three numbers called sensitivity.",
        drawing.of_differences,
        differences,
        marks,
    )
    return


@app.cell
def no_epsilon(HEIGHTS, Prose, expected_difference, share_beyond_expected):
    share_beyond_sampled = HEIGHTS.share_farther_apart(43.77)
    Prose(f"""
    ## Why that is no ε

    Differential privacy is a promise to *every* pair of people, and an average is not a bound:
    {100 * share_beyond_expected:.1f} % of random pairs differ by more than {expected_difference:.2f} cm. Noise of scale
    Δ/ε lets an observer tell two people apart by a factor of up to e^(ε·|x − x′|/Δ). For two people who are 40 cm
    apart, Δ = {expected_difference:.2f} makes that e^({40 / expected_difference:.2f}·ε): who reads ε = 1 on the label
    gets {40 / expected_difference:.1f}. Even 43.77 cm fails for {100 * share_beyond_sampled:.2f} % of pairs. What the
    sampled number gives is called *random* differential privacy: a promise about typical people, which those who are
    unusually tall pay for.

    Nor is anything infinite: *the document calls the height unbounded one line before it says that nobody is taller
    than 3 m.* A bound from public knowledge, to which every device moves its value before it adds noise, is all that a
    sensitivity needs: 120 to 220 cm gives Δ = 100 cm, for every pair, also for those outside.
    """)
    return (share_beyond_sampled,)


@app.cell
def experiment(HEIGHTS, drawing, expected_difference, np, rng):
    epsilons = np.array([0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 3.0])
    lines = [
        ("E|x − x′|", expected_difference),
        ("E|x − x′| + σ", expected_difference + HEIGHTS.sd),
        ("E|x − x′| + 2σ", expected_difference + 2 * HEIGHTS.sd),
        ("100 cm, the bounds", 100.0),
    ]
    measured = [drawing.errors(sensitivity, epsilons, 500, 400, rng) for _, sensitivity in lines]
    return epsilons, lines, measured


@app.cell
def against_epsilon(HEIGHTS, Prose):
    Prose(f"""
    ## The error against ε

    500 people, each with noise of their own. The document draws one run for each point, so that its lines jump; here
    each point is the mean of 400 runs, and the lines are b·√(2/n)·√(2/π) with b = Δ/ε. The error falls as 1/ε.

    *That privacy grows with the sensitivity, as the document's caption has it, is an illusion of the axis: the lines
    lie above each other because the ε below them is the true loss of the last line alone.* (*Adding σ =
    {HEIGHTS.sd:.2f} cm, the deviation of a height, to the mean of a difference mixes two things: the deviation of the
    difference is {HEIGHTS.sd_of_difference:.2f} cm. And the experiment draws heights from N(170, 1) instead of the
    population above; only the noise matters for the error, so that no harm is done.*)
    """)
    return


@app.cell
def picture_of_errors(Plot, drawing, epsilons, lines, measured):
    Plot(
        "Mean absolute error of the mean of 500 people against epsilon, for four sensitivities, on logarithmic axes.",
        drawing.of_errors,
        lines,
        epsilons,
        measured,
    )
    return


@app.cell
def widgets(mo):
    people = mo.ui.slider(start=100, stop=100_000, step=100, value=500, label="people", show_value=True)
    epsilon = mo.ui.slider(start=0.1, stop=4.0, step=0.1, value=1.0, label="ε", show_value=True)
    apart = mo.ui.slider(start=1, stop=100, step=1, value=40, label="two people, cm apart", show_value=True)
    mo.vstack([people, epsilon, apart])
    return apart, epsilon, people


@app.cell
def reading(Prose, apart, drawing, epsilon, expected_difference, people, table):
    def row(name, sensitivity):
        error = drawing.mean_of_absolute_error(sensitivity, epsilon.value, people.value)
        return f"{sensitivity:.4g} cm, {name}", f"{error:.3g} cm", f"{epsilon.value * apart.value / sensitivity:.2f}"

    Prose(
        table(
            ("Δ", f"error of the mean of {people.value} people", f"true ε for two people {apart.value} cm apart"),
            row("typical", expected_difference),
            row("the bounds", 100.0),
        ),
        f"""
        *Noise of a metre is not too much for a mean, as the document fears*: with 500 people and ε = 1 the mean errs by
        {drawing.mean_of_absolute_error(100.0, 1.0, 500):.1f} cm on average, with 50 000 people by
        {drawing.mean_of_absolute_error(100.0, 1.0, 50_000):.2f} cm.
        """,
    )
    return


@app.cell
def honest(simulate):
    runs = [
        simulate("heights", mechanism=name, clients=500, engine="memory", seed=2020) for name in ("laplace", "auto")
    ]
    return (runs,)


@app.cell
def with_bounds(Prose, runs, table):
    def line(run):
        low, high = run.result.intervals["reporters"]
        truth, mean = run.truth["reporters"], run.result.estimate.mean
        return run.task.mechanism, f"{truth:.2f} cm", f"{mean:.1f} cm", f"{low:.1f} to {high:.1f} cm"

    Prose(
        """
        ## The same, with bounds that hold

        This is the whole of hush: 500 devices that know their height, a broker, an aggregator, ε = 1, and bounds of 120
        to 220 cm. The noise is drawn in integers from the operating system (*floating-point noise, as the document's
        numpy draws it, can be read back*: see `hush attack float`). So this table is another one each time, and its
        interval covers the mean of those who reported in 95 of 100 runs.
        """,
        table(("mechanism", "true mean", "estimate", "95 % interval"), *map(line, runs)),
        """
        The second line is the mechanism that hush picks by itself: it reports one of a few levels instead of a noisy
        number, and needs about half as many people for the same error at the same ε.
        """,
    )
    return


@app.cell
def exercise(Prose, mo):
    from hush_tour.exercises import EXERCISES

    question = EXERCISES["heights"]
    answer = mo.ui.number(label="your answer")
    Prose(
        f"""
        ## Exercise

        {question.question}

        Check an answer here, or with `hush tour heights --answer NUMBER`.
        """
    )
    return answer, question


@app.cell
def field(answer):
    answer
    return


@app.cell
def checked(Prose, answer, question):
    None if answer.value is None else Prose(question.check(answer.value))
    return


if __name__ == "__main__":
    app.run()

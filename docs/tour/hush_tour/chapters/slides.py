"""The slides: the definition, the Laplace distribution, a private mean, and the ratio of densities."""

import marimo

app = marimo.App(width="medium", app_title="A distribution from four sides, and a density ratio one can see")


@app.cell
def imports():
    import math
    from fractions import Fraction

    import marimo as mo
    import numpy as np

    from hush_simulations.engines.experiment import SeededRng
    from hush_tour.drawing import slides as drawing
    from hush_tour.laplace_law import LaplaceLaw, uniform
    from hush_simulations.api.simulate import simulate
    from hush_tour.prose import Plot, Prose, table
    from hush_tour.trusted_collector import sensitivity
    from hush_tour.trusted_collector.laplace import CentralLaplace

    return (
        CentralLaplace,
        Fraction,
        LaplaceLaw,
        Plot,
        Prose,
        SeededRng,
        drawing,
        simulate,
        math,
        mo,
        np,
        sensitivity,
        table,
        uniform,
    )


@app.cell
def opening(Prose):
    Prose("""
    # A distribution from four sides, and a density ratio one can see

    The slides behind this chapter look at one private mean: from the definition, over the distribution of the noise, to
    a picture in which the promise is a height. A trusted collector again; at the end the same mean without one.
    """)
    return


@app.cell
def definition(Prose, math):
    both = {epsilon: (math.exp(epsilon), 1 + epsilon) for epsilon in (0.1, 1.0)}
    Prose(f"""
    ## The definition

    M is ε-differentially private if Pr[M(D, q) ∈ T] ≤ e^ε · Pr[M(D′, q) ∈ T] for all neighbouring D and D′, all queries q
    and all sets T of results: whoever decides anything by the result is nearly as likely to decide it without you.

    *The first two slides have 1 + ε in the place of e^ε*: {both[0.1][1]:g} for {both[0.1][0]:.4f} at ε = 0.1, but
    {both[1.0][1]:g} for {both[1.0][0]:.3f} at ε = 1. Only with e^ε do the losses of two releases add up.
    """)
    return (both,)


@app.cell
def picture_of_definitions(Plot, drawing):
    Plot("e to the ε lies above 1 + ε, and more so the larger ε is.", drawing.of_definitions)
    return


@app.cell
def sides(CentralLaplace, Fraction, LaplaceLaw, SeededRng, np, uniform):
    law = LaplaceLaw(0.0, 1.0)
    evenly = uniform(20_000, np.random.default_rng(208))
    inverted = law.inverse(evenly)
    exact_noise, source = CentralLaplace(Fraction(1), Fraction(1), Fraction(1, 256), exact=True), SeededRng(208)
    drawn = np.array([float(exact_noise.release(0, source)) for _ in range(20_000)])
    return drawn, evenly, inverted, law


@app.cell
def distribution(Prose, drawn, inverted):
    Prose(f"""
    ## The Laplace distribution

    Density e^(−|y|/s)/(2s); distribution and inverse follow by an integral and a logarithm. Uniform numbers become
    Laplace ones by the inverse: 20 000 have a variance of {inverted.var():.3f}, where 2s² = 2. The last histogram is
    drawn as a device draws: in integers, without a logarithm, exactly; its variance is {drawn.var():.3f}. *(The inverse
    in floating point leaves gaps between its results, by which the value behind the noise can be told: fine for
    figures, and for nothing else.)*
    """)
    return


@app.cell
def picture_of_sides(Plot, drawing, drawn, evenly, law):
    Plot(
        "Six panels: density, distribution and inverse of Lap(1), uniform numbers, their inverse, and exact draws.",
        drawing.of_sides,
        law,
        evenly,
        drawn,
    )
    return


@app.cell
def memory(Prose):
    Prose("""
    ## Why this distribution

    |Z| is exponential: it has no memory. Whoever knows that the noise is beyond t knows nothing new about how far: the
    survivor function from t on is the one from 0 on. So moving the centre multiplies every tail by the same factor, and
    the ratio of two shifted densities is constant beyond both centres: e^(Δ/s), the whole ε and never more.
    """)
    return


@app.cell
def picture_of_memory(Plot, drawing):
    Plot("An exponential density, and its survivor function from 0 and from 1.5 on, of one shape.", drawing.of_memory)
    return


@app.cell
def clamping(CentralLaplace, Fraction, np, sensitivity):
    lower, upper, people = Fraction(0), Fraction(10), 100
    given = np.random.default_rng(7).lognormal(1.2, 0.9, people)
    clamped = np.clip(given, float(lower), float(upper))
    moved = int((given > float(upper)).sum())
    global_sensitivity = sensitivity.mean(lower, upper, people)
    private_mean = CentralLaplace(global_sensitivity, Fraction(1), Fraction(1, 100_000), exact=True)
    return clamped, global_sensitivity, given, lower, moved, people, private_mean, upper


@app.cell
def mean(Prose, clamped, given, global_sensitivity, moved, people, private_mean, upper):
    Prose(f"""
    ## A private mean

    Income, say, of {people} people, clamped to [0, {float(upper):g}]: {moved} values are moved, and the mean falls from
    {given.mean():.3f} to {clamped.mean():.3f}. That bias is the price of a sensitivity at all. Replacing one person by x
    moves the mean by at most (max − min)/N = {float(global_sensitivity):g}: x̄(x) = Σ_(j≠i) x_j/N + x/N. *(The slide divides
    the others by N − 1 and the new one by N; both are N.)* So M(x) = x̄ + Z with Z ~ Lap(GS/ε), of scale
    {float(private_mean.scale):g} for ε = 1.
    """)
    return


@app.cell
def releases(CentralLaplace, Fraction, SeededRng, clamped, global_sensitivity, np):
    truth = Fraction(round(float(clamped.mean()) * 100_000), 100_000)
    again = {}
    for name, one in (("ε = 0.1", Fraction(1, 10)), ("ε = 0.5", Fraction(1, 2)), ("ε = 2", Fraction(2))):
        noise, draws = CentralLaplace(global_sensitivity, one, Fraction(1, 100_000), exact=True), SeededRng(208)
        again[name] = np.array([float(noise.release(truth, draws)) for _ in range(5000)])
    deviations = {name: float(values.std()) for name, values in again.items()}
    return again, deviations, truth


@app.cell
def picture_of_releases(Plot, again, drawing, truth):
    Plot(
        "Histograms of 5000 releases of a mean at three epsilons, all around the true one, and narrower for larger ε.",
        drawing.of_releases,
        float(truth),
        again,
    )
    return


@app.cell
def widgets(mo):
    chosen = mo.ui.slider(start=0.1, stop=3.0, step=0.1, value=1.0, label="ε", show_value=True)
    point = mo.ui.slider(start=-3.0, stop=4.0, step=0.1, value=1.3, label="released value z", show_value=True)
    mo.vstack([chosen, point])
    return chosen, point


@app.cell
def two(LaplaceLaw, chosen, np, point):
    # Neighbouring data sets whose means are as far apart as the sensitivity allows: 0 and 1, in units of it.
    scale = 1 / chosen.value
    pair = LaplaceLaw(0.0, scale), LaplaceLaw(1.0, scale)
    from_one, from_other = (float(law_of_one.density(np.array([point.value]))[0]) for law_of_one in pair)
    observed_ratio = max(from_one / from_other, from_other / from_one)
    return observed_ratio, pair


@app.cell
def ratio(Prose, chosen, math, observed_ratio, point):
    surer = max(observed_ratio / (1 + observed_ratio), 1 - observed_ratio / (1 + observed_ratio))
    Prose(f"""
    ## The promise as a height

    pr[M(x) = t]/pr[M(x′) = t] = e^(ε·(|x̄′ − t| − |x̄ − t|)/GS) ≤ e^(ε·|x̄′ − x̄|/GS) ≤ e^ε, by the triangle inequality.
    *(The slide has "=" where the first "≤" stands; and "pr" are densities, for a single point has no probability.)*

    At z = {point.value:g} the two densities have a ratio of {observed_ratio:.3f}; e^ε is {math.exp(chosen.value):.3f}. Whoever
    held both data sets for equally likely is now {100 * surer:.1f} % sure of the likelier one. *That one "can not
    determine" which was more likely, as the slide says, is too much: one can, up to the factor e^ε, and that is the
    definition.*
    """)
    return


@app.cell
def picture_of_ratio(Plot, chosen, drawing, pair, point):
    Plot(
        "Two Laplace densities of neighbouring data sets, and their ratio, which stays between e to the −ε and e to the ε.",
        drawing.of_ratio,
        pair,
        chosen.value,
        point.value,
    )
    return


@app.cell
def honest(Prose, clamped, simulate, table):
    runs = [
        simulate(
            data=[float(one) for one in clamped] * 20,
            domain={"kind": "number", "lower": 0, "upper": 10},
            epsilon=epsilon,
            engine="memory",
            seed=8,
        )
        for epsilon in ("0.5", "2")
    ]

    def line(run):
        low, high = run.result.intervals["reporters"]
        return (
            f"{float(run.task.epsilon):g}",
            f"{run.truth['reporters']:.3f}",
            f"{run.result.estimate.mean:.2f}",
            f"{low:.2f} to {high:.2f}",
        )

    Prose(
        """
        ## The same mean without a collector

        2000 devices with these values, each of which clamps and perturbs its own. For one person more noise, for nobody
        a list of incomes.
        """,
        table(("ε", "true mean", "estimate", "95 % interval"), *map(line, runs)),
    )
    return (runs,)


@app.cell
def exercise(Prose, mo):
    from hush_tour.exercises import EXERCISES

    question = EXERCISES["slides"]
    answer = mo.ui.number(label="your answer")
    Prose(
        f"""
        ## Exercise

        {question.question}

        Check an answer here, or with `hush tour slides --answer NUMBER`.
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

"""The book chapter: sensitivities, the Laplace mechanism, its errors, and central beside local."""

import marimo

app = marimo.App(width="medium", app_title="Sensitivity, the Laplace mechanism, and the price of not trusting")


@app.cell
def imports():
    import math
    from fractions import Fraction

    import marimo as mo
    import numpy as np

    return Fraction, math, mo, np


@app.cell
def parts():
    from hush_common.rng import SystemRng
    from hush_simulations.engines.experiment import SeededRng
    from hush_tour import needed
    from hush_tour.drawing import mechanism as drawing
    from hush_tour.laplace_law import LaplaceLaw
    from hush_simulations.api.simulate import simulate
    from hush_tour.prose import Plot, Prose, table
    from hush_tour.trusted_collector import sensitivity
    from hush_tour.trusted_collector import laplace as trusted
    from hush_tour.trusted_collector.laplace import CentralLaplace

    return (
        CentralLaplace,
        LaplaceLaw,
        Plot,
        Prose,
        SeededRng,
        SystemRng,
        drawing,
        needed,
        sensitivity,
        simulate,
        table,
        trusted,
    )


@app.cell
def opening(Prose):
    Prose("""
    # Sensitivity, the Laplace mechanism, and the price of not trusting

    A collector who is trusted with everybody's records wants to publish a statistic of them, and nobody who reads it
    should learn much about any one person. The book chapter behind this one adds noise to the answer: as much as one
    record can move it. hush trusts no such collector. This chapter follows the book with a collector, in
    `hush_tour.trusted_collector`, and then shows what it costs to do without.
    """)
    return


@app.cell
def norms(sensitivity):
    norm_of_example, norm_of_ones = sensitivity.l1_norm([1, 0, -3]), sensitivity.l1_norm([1] * 5)
    return norm_of_example, norm_of_ones


@app.cell
def enumerated(Fraction, sensitivity):
    # Every data set of three records, and every neighbour of each: what the formulas say has to come out.
    def share(data):
        return [Fraction(sum(data), len(data))]

    def cells(data):
        return [sum(one == cell for one in data) for cell in "abcd"]

    found = {
        "share": sensitivity.enumerated(share, (0, 1), 3, "replace"),
        "histogram, replaced": sensitivity.enumerated(cells, "abcd", 3, "replace"),
        "histogram, added": sensitivity.enumerated(cells, "abcd", 3, "add or remove"),
        "mean in [0, 12]": sensitivity.enumerated(share, (0, 5, 12), 3, "replace"),
    }
    return (found,)


@app.cell
def global_sensitivity(Prose, found, norm_of_example, norm_of_ones, table):
    Prose(
        f"""
        ## Global sensitivity (definition 1.1)

        GS_f is the most that f can move, in the ℓ₁ norm, when a data set becomes a neighbouring one. The norm adds
        absolute values: ‖(1, 0, −3)‖₁ = {norm_of_example} and ‖(1, 1, 1, 1, 1)‖₁ = {norm_of_ones}. *(The document
        prints 6 for the second.)* By looking at all data sets of three records and all their neighbours:
        """,
        table(
            ("query", "enumerated, n = 3", "formula"),
            ("share of records that are such", found["share"], "1/n"),
            ("average of numbers in [0, R], R = 12 (exercise 1.2)", found["mean in [0, 12]"], "R/n"),
            ("histogram, a record is replaced", found["histogram, replaced"], "2"),
            ("histogram, a record is added or removed", found["histogram, added"], "1"),
        ),
        """
        *The 2 of a histogram is for a record that is replaced; where one is added or removed it is 1, and the document
        does not say there which neighbours it means.* Every ε is about one of the two.
        """,
    )
    return


@app.cell
def picture_of_densities(LaplaceLaw, Plot, drawing):
    Plot(
        "Densities of Laplace distributions of scales 1, 2, 4 and 7.",
        drawing.of_densities,
        [(f"λ = {scale}", LaplaceLaw(0, scale)) for scale in (1, 2, 4, 7)],
        "Lap(λ): a pointed hill, wider with λ",
    )
    return


@app.cell
def vector_proof(LaplaceLaw, math, np):
    # The proof, with numbers: ratios of densities at 100 000 places for two vectors that are Delta apart.
    mu, other, privacy = np.array([3.0, 1.0, 4.0]), np.array([3.5, 0.0, 4.5]), 0.7
    apart = float(np.abs(mu - other).sum())
    outputs = np.random.default_rng(1).normal(3, 6, (100_000, 3))
    density = np.prod([LaplaceLaw(at, apart / privacy).density(outputs[:, i]) for i, at in enumerate(mu)], axis=0)
    beside = np.prod([LaplaceLaw(at, apart / privacy).density(outputs[:, i]) for i, at in enumerate(other)], axis=0)
    largest_ratio, bound = float((density / beside).max()), math.exp(privacy)
    return apart, bound, largest_ratio


@app.cell
def theorem(Prose, apart, bound, largest_ratio):
    Prose(f"""
    ## The mechanism is ε-DP (algorithm 1, theorem 1.3)

    A_Lap(ε, x) = f(x) + (Z₁, …, Z_d), Z_i ~ Lap(GS_f/ε). Its density is a product, and the ratio of two such products is

    h_x(y)/h_x′(y) = e^(ε/Δ·(‖y − μ′‖₁ − ‖y − μ‖₁)) ≤ e^(ε/Δ·‖μ − μ′‖₁) ≤ e^ε

    by the triangle inequality. For μ = (3, 1, 4) and μ′ = (3.5, 0, 4.5), which are {apart:g} apart, and ε = 0.7, the
    largest ratio at 100 000 random outputs is {largest_ratio:.6f}, and e^0.7 = {bound:.6f}. *(In the document the
    density for x, with μ, becomes the one for x′, with μ′, in the middle of a line that calls it simplified.)*
    """)
    return


@app.cell
def lemma(CentralLaplace, Fraction, SeededRng, np):
    noise = CentralLaplace(Fraction(2), Fraction(1, 10), Fraction(1, 64), exact=True)
    drawn = np.array([float(noise.release(0, rng)) for rng in [SeededRng(14)] for _ in range(20_000)])
    scale = float(noise.scale)
    mean_absolute, root_mean_square = float(np.abs(drawn).mean()), float(np.sqrt((drawn**2).mean()))
    beyond = {t: float((np.abs(drawn) > t * scale).mean()) for t in (1, 2, 3)}
    return beyond, mean_absolute, root_mean_square, scale


@app.cell
def lemma_in_words(Prose, beyond, math, mean_absolute, root_mean_square, scale, table):
    Prose(
        """
        ## How large the noise is (lemma 1.4)

        20 000 draws of Lap(20), by the sampler of a device (whole numbers, exact), beside what the lemma says. The tail
        bound is an equality. *(In exercise 1.7 the document calls E M = ∫ P(M > x) dx an inequality.)*
        """,
        table(
            ("", "lemma", "drawn"),
            ("E|Z| = λ", f"{scale:.2f}", f"{mean_absolute:.2f}"),
            ("√E Z² = √2·λ", f"{math.sqrt(2) * scale:.2f}", f"{root_mean_square:.2f}"),
            *((f"P(|Z| > {t}λ) = e^−{t}", f"{math.exp(-t):.4f}", f"{share:.4f}") for t, share in beyond.items()),
        ),
    )
    return


@app.cell
def counties(math, np, trusted):
    county_scale, county_count = 2 / 0.1, 3143
    bound_of_lemma = county_scale * (math.log(county_count) + 1)
    exact_mean = trusted.expected_largest(county_scale, county_count)
    one_in_twenty = trusted.largest_with_probability(county_scale, county_count, 0.05)
    largest = np.random.default_rng(3143).exponential(county_scale, (2000, county_count)).max(axis=1)
    return bound_of_lemma, county_scale, exact_mean, largest, one_in_twenty


@app.cell
def exercise_1_5(Prose, bound_of_lemma, county_scale, exact_mean, largest, one_in_twenty):
    Prose(f"""
    ## 3143 counties (exercise 1.5)

    One count of the histogram errs by λ = 2/ε = **{county_scale:g}** people on average, in Suffolk County as in any other,
    however many counties there are. The largest of 3143 errors is, on average, at most λ·(ln 3143 + 1) =
    **{bound_of_lemma:.2f}**, and exactly λ·(1 + 1/2 + … + 1/3143) = **{exact_mean:.2f}**. With a probability of 95 % none
    exceeds {one_in_twenty:.1f}. 2000 runs gave a mean of {largest.mean():.1f}.
    """)
    return


@app.cell
def picture_of_largest(Plot, bound_of_lemma, drawing, exact_mean, largest):
    Plot(
        "Histogram of the largest error among 3143 noisy counts in 2000 runs, with its exact mean and the lemma's bound.",
        drawing.of_largest,
        largest,
        {"exact mean": exact_mean, "bound of the lemma": bound_of_lemma},
    )
    return


@app.cell
def histogram(CentralLaplace, Fraction, SystemRng):
    labels, people = ["on foot", "bicycle", "bus", "train", "car"], [61, 124, 83, 47, 185]
    release = CentralLaplace(Fraction(2), Fraction(1, 2), Fraction(1), exact=True)
    released = [float(release.release(many, SystemRng())) for many in people]
    return labels, people, released


@app.cell
def picture_of_counts(Plot, drawing, labels, people, released):
    Plot(
        "True counts of how 500 people commute, and the counts released with noise of scale 4, which are near them.",
        drawing.of_counts,
        labels,
        people,
        released,
    )
    return


@app.cell
def sizes(Fraction, needed):
    sizes_at = {
        one: (needed.central(0.01, one), needed.by_coins(0.01, one), needed.by_local_noise(0.01, one))
        for one in (Fraction(1, 10), Fraction(1))
    }
    halved_error = [n(0.005, Fraction(1, 10)) / n(0.01, Fraction(1, 10)) for n in (needed.central, needed.by_coins)]
    halved_epsilon = [n(0.01, Fraction(1, 20)) / n(0.01, Fraction(1, 10)) for n in (needed.central, needed.by_coins)]
    return halved_epsilon, halved_error, sizes_at


@app.cell
def exercise_1_6(Prose, halved_epsilon, halved_error, sizes_at, table):
    Prose(
        f"""
        ## Central beside local (exercise 1.6)

        How many people does a share take, for a root mean square error of α? With a collector √2/(α·ε): halving α or ε
        takes {halved_error[0]:.1f} times as many people. With randomized response e^ε/((e^ε − 1)²·α²): halving α takes
        {halved_error[1]:.1f} times as many, halving ε {halved_epsilon[1]:.1f} times. For α = 0.01:
        """,
        table(
            ("ε", "trusted collector", "randomized response", "local Laplace noise"),
            *((f"{float(one):g}", *(f"{n:,}".replace(",", " ") for n in row)) for one, row in sizes_at.items()),
        ),
        """
        *The document's key point, that Laplace noise adds far less error than randomized response for the same budget,
        compares a trusted collector with none. Among devices that trust nobody the coins win, at every ε.* (*Its
        predicate has values in [0, 1]; a predicate is true or false, and coins need that.*) Below ε = 1/n even a
        collector's noise, of standard deviation √2, exceeds any share.
        """,
    )
    return


@app.cell
def widget(mo):
    tenths = mo.ui.slider(start=1, stop=40, step=1, value=10, label="ε, in tenths", show_value=True)
    tenths
    return (tenths,)


@app.cell
def picture_of_prices(Fraction, Plot, drawing, tenths):
    Plot(
        "Error of a share against the number of people: a trusted collector's falls as 1/n, that of coins and of local "
        "noise as 1/√n.",
        drawing.of_central_and_local,
        Fraction(tenths.value, 10),
    )
    return


@app.cell
def honest(Prose, simulate):
    run = simulate("survey", clients=1000, engine="memory", seed=6)
    low, high = run.result.intervals["reporters"]
    Prose(f"""
    ## Without a collector

    1000 devices, a yes or no each, ε = {float(run.task.epsilon):g}, real clients and a real aggregator: of those asked
    {100 * run.truth["reporters"]:.1f} % say yes, the estimate is {100 * run.result.estimate.mean:.1f} %, and its 95 %
    interval {100 * low:.1f} to {100 * high:.1f} %. Nobody saw an answer.
    """)
    return (run,)


@app.cell
def exercise(Prose, mo):
    from hush_tour.exercises import EXERCISES

    question = EXERCISES["mechanism"]
    answer = mo.ui.number(label="your answer")
    Prose(
        f"""
        ## Exercise

        {question.question}

        Check an answer here, or with `hush tour mechanism --answer NUMBER`.
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

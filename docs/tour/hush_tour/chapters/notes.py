"""The notes: location and scale, sensitivities of counts, and the proof in numbers."""

import marimo

app = marimo.App(width="medium", app_title="Location, scale, and the proof step by step")


@app.cell
def imports():
    import math
    from fractions import Fraction

    import marimo as mo
    import numpy as np

    from hush_common.rng import SystemRng
    from hush_tour.drawing import mechanism as drawing
    from hush_tour.laplace_law import LaplaceLaw
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
        SystemRng,
        drawing,
        simulate,
        math,
        mo,
        np,
        sensitivity,
        table,
    )


@app.cell
def opening(Prose):
    Prose("""
    # Location, scale, and the proof step by step

    The Spanish notes behind this chapter introduce the Laplace distribution by its two parameters, the sensitivity by a
    census, and the mechanism by a proof of five lines. All of it is here with numbers, each line of the proof too.
    """)
    return


@app.cell
def standard(LaplaceLaw, Plot, drawing):
    Plot(
        "The density of the standard Laplace distribution.",
        drawing.of_densities,
        [("Lap(0, 1)", LaplaceLaw())],
        "Lap(0, 1)",
    )
    return


@app.cell
def parameters(LaplaceLaw, Prose, np, table):
    drawn = {scale: LaplaceLaw(3.0, scale).draws(20_000, np.random.default_rng(24)) for scale in (1, 2, 3, 4)}
    Prose(
        """
        ## μ and b

        f(x | μ, b) = e^(−|x − μ|/b)/(2b). μ moves the hill and b makes it wider: mean and median are μ, the variance is
        2b². *(The notes say that b sets the shape, "forma"; it is a scale, and all these hills have one shape.)* Of
        20 000 draws with μ = 3 each:
        """,
        table(
            ("b", "mean", "median", "variance", "2b²"),
            *(
                (b, f"{values.mean():.2f}", f"{np.median(values):.2f}", f"{values.var():.2f}", 2 * b**2)
                for b, values in drawn.items()
            ),
        ),
    )
    return (drawn,)


@app.cell
def picture_of_locations(LaplaceLaw, Plot, drawing):
    locations = [(f"μ = {at}", LaplaceLaw(at, 1)) for at in (-3, 0, 3, 6)]
    Plot("Laplace densities of scale 1 at −3, 0, 3 and 6.", drawing.of_densities, locations, "Location")
    return


@app.cell
def picture_of_scales(LaplaceLaw, Plot, drawing):
    scales = [(f"b = {scale}", LaplaceLaw(0, scale)) for scale in (1, 2, 3, 4)]
    Plot("Laplace densities around 0 of scales 1, 2, 3 and 4.", drawing.of_densities, scales, "Scale")
    return


@app.cell
def census(Fraction, sensitivity):
    norm_of_example = sensitivity.l1_norm([2, 3, -4, 6])
    people = [(of_age, has_read) for of_age in (False, True) for has_read in (False, True)]

    def of_age(data):
        return [sum(person[0] for person in data)]

    def readers(data):
        return [sum(person[1] for person in data)]

    def both(data):
        return of_age(data) + readers(data)

    def share_of_age(data):
        return [Fraction(sum(person[0] for person in data), len(data))]

    def four_kinds(data):
        return [sum(person == kind for person in data) for kind in people]

    found = {
        (query.__name__, neighbours): sensitivity.enumerated(query, people, 3, neighbours)
        for query in (of_age, readers, both, four_kinds)
        for neighbours in ("replace", "add or remove")
    }
    found["share_of_age", "replace"] = sensitivity.enumerated(share_of_age, people, 3, "replace")
    found["share_of_age", "add or remove"] = "n is a secret"
    return found, norm_of_example


@app.cell
def sensitivities(Prose, found, norm_of_example, table):
    names = {
        "of_age": "f₁, people of age",
        "readers": "f₂, readers of Don Quixote",
        "both": "f_c = (f₁, f₂)",
        "share_of_age": "the proportion of age, or the mean of any [0, 1]",
        "four_kinds": "the histogram of the four kinds of people",
    }
    Prose(
        f"""
        ## Global sensitivity

        Δf is the largest ‖f(D₁) − f(D₂)‖₁ over data sets that differ in one record; ‖(2, 3, −4, 6)‖₁ = {norm_of_example}.
        Counted over every data set of three people and each of its neighbours:
        """,
        table(
            ("query", "a record replaced", "a record added or removed"),
            *((name, found[key, "replace"], found[key, "add or remove"]) for key, name in names.items()),
        ),
        """
        One person can be of age *and* a reader, so that the pair has sensitivity 2, the sum. *(The notes say that any
        function that counts has sensitivity 1: one count has, a vector of counts may have more, as their own next
        example shows. They leave open which data sets have distance 1, and write a maximum where there need not be one:
        it is a supremum.)* A proportion of n people has 1/n, a mean range/n.
        """,
    )
    return


@app.cell
def mechanism(CentralLaplace, Fraction, SystemRng):
    collector = CentralLaplace(Fraction(2), Fraction(1), Fraction(1), exact=True)
    answers = {"D₁": (120, 10), "D₂": (121, 10)}
    released = {name: [int(collector.release(one, SystemRng())) for one in pair] for name, pair in answers.items()}
    return answers, collector, released


@app.cell
def released_pairs(Prose, answers, collector, released, table):
    Prose(
        f"""
        ## The mechanism

        M_L(D, f, ε) = f(D) + (N₁, …, N_M), with independent N_i ~ Lap(0, Δf/ε): here Δf = 2, ε = 1, and the noise has a
        scale of {float(collector.scale):g}. Whole numbers in, whole numbers out, from the operating system's randomness:
        run the cell again and it is another. (*The notes draw with scipy, in floating point, through which the true
        answer can be read.*)
        """,
        table(("", "true", "released"), *((name, answers[name], tuple(pair)) for name, pair in released.items())),
    )
    return


@app.cell
def widgets(mo):
    epsilon = mo.ui.slider(start=0.1, stop=3.0, step=0.1, value=1.0, label="ε", show_value=True)
    at = mo.ui.slider(start=100, stop=140, step=1, value=115, label="released count s₁", show_value=True)
    mo.vstack([epsilon, at])
    return at, epsilon


@app.cell
def proof(LaplaceLaw, at, epsilon, math, np):
    # D1 -> (120, 10), D2 -> (121, 11): as far apart as two neighbours can be. s = (s1, 8).
    first, second, s = np.array([120.0, 10.0]), np.array([121.0, 11.0]), np.array([float(at.value), 8.0])
    delta = 2.0
    b = delta / epsilon.value
    noise = LaplaceLaw(0.0, b)
    steps = {
        "ratio of the densities of f(D) + N at s": math.prod(
            LaplaceLaw(m, b).density(s)[i] for i, m in enumerate(first)
        )
        / math.prod(LaplaceLaw(m, b).density(s)[i] for i, m in enumerate(second)),
        "the same of N at s − f(D)": float(noise.density(s - first).prod() / noise.density(s - second).prod()),
        "e^((‖s − f(D₂)‖₁ − ‖s − f(D₁)‖₁)/b)": math.exp(float(np.abs(s - second).sum() - np.abs(s - first).sum()) / b),
        "≤ e^(‖f(D₁) − f(D₂)‖₁/b)": math.exp(float(np.abs(first - second).sum()) / b),
        "≤ e^(Δf/b) = e^ε": math.exp(delta / b),
    }
    return (steps,)


@app.cell
def proof_in_numbers(Prose, at, epsilon, steps, table):
    Prose(
        f"""
        ## The proof in numbers (theorem 1)

        For s = ({at.value}, 8) and ε = {epsilon.value:g}, line by line; the slider moves s₁. *(In the notes the
        exponent of the third line has its sign reversed, which the bound survives, being symmetric; the proof is about
        one component where the theorem has M, so that absolute values become ℓ₁ norms; b = Δf/ε is used before it is
        introduced; and P[… = s] stands for densities.)*
        """,
        table(("step", "value"), *((name, f"{value:.6f}") for name, value in steps.items())),
    )
    return


@app.cell
def further(Prose, simulate):
    run = simulate("commute", clients=600, epsilon="2", engine="memory", seed=24)
    lines = {one.name: one for one in run.result.estimate.parts}
    top = max(lines.values(), key=lambda one: one.mean)
    low, high = top.intervals["reporters"]
    Prose(f"""
    ## To be continued

    The notes end with two questions: what of a more interesting example, and are there better mechanisms? Here are one
    and the other: {run.accepted} devices say how their owners get to work, without telling it, by subset selection at
    ε = 2, which for categories beats noise on every count. Of {len(lines)} ways the commonest is estimated to be
    {top.name}, with {100 * top.mean:.0f} % ({100 * low:.0f} to {100 * high:.0f} %). `hush plan` compares all mechanisms for a question.
    """)
    return (run,)


@app.cell
def exercise(Prose, mo):
    from hush_tour.exercises import EXERCISES

    question = EXERCISES["notes"]
    answer = mo.ui.number(label="your answer")
    Prose(
        f"""
        ## Exercise

        {question.question}

        Check an answer here, or with `hush tour notes --answer NUMBER`.
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

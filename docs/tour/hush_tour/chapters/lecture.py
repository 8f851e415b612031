"""The lecture: randomized response, the risk of a mean, vectors, and (epsilon, delta)."""

import marimo

app = marimo.App(width="medium", app_title="Coins, risks, and what a delta buys")


@app.cell
def imports():
    import math
    from fractions import Fraction

    import marimo as mo
    import numpy as np

    return Fraction, math, mo, np


@app.cell
def parts():
    from hush_common.mechanisms import RandomizedResponse
    from hush_simulations.engines.experiment import SeededRng
    from hush_tour.drawing import lecture as drawing
    from hush_simulations.api.simulate import simulate
    from hush_tour.prose import Plot, Prose, table
    from hush_tour.trusted_collector import gaussian
    from hush_tour.trusted_collector.laplace import CentralLaplace

    return CentralLaplace, Plot, Prose, RandomizedResponse, SeededRng, drawing, gaussian, simulate, table


@app.cell
def opening(Prose):
    Prose("""
    # Coins, risks, and what a delta buys

    Lecture 18, behind this chapter, runs from two coins to (ε, δ). It has the best ideas of all five documents in the
    fewest words, and the most slips; each is named where it stands.
    """)
    return


@app.cell
def coins(Fraction, RandomizedResponse, math):
    def losses(mechanism):
        """The log-ratios of both reports, in both directions, from the table of exact probabilities."""
        p = [[float(mechanism.probability((report,), truth)) for truth in (0, 1)] for report in (0, 1)]
        return {
            f"P({report} | {one}) / P({report} | {1 - one})": math.log(p[report][one] / p[report][1 - one])
            for report in (1, 0)
            for one in (1, 0)
        }

    two_coins = RandomizedResponse.from_coins(Fraction(2), Fraction(1, 2), Fraction(1, 2))
    as_epsilon = RandomizedResponse.from_epsilon(Fraction(math.log(3)).limit_denominator(10**6))
    losses_of_coins, losses_of_epsilon = losses(two_coins), losses(as_epsilon)
    return losses_of_coins, losses_of_epsilon


@app.cell
def random_mechanisms(Prose, losses_of_coins, losses_of_epsilon, table):
    Prose(
        """
        ## Random mechanisms 1 and 2

        Toss a coin; on heads tell the truth, on tails toss again and say what that coin says. Or: tell the truth with
        probability e^ε/(e^ε + 1), and lie otherwise. Privacy loss is the logarithm of a ratio, of which there are four;
        *the lecture looks at one, and writes x̃ for a neighbour on one line and for a report on the next*. From the exact probabilities that hush's own mechanism has:
        """,
        table(
            ("ratio", "mechanism 1, two fair coins", "mechanism 2, ε = ln 3"),
            *(
                (f"ln {name}", f"{loss:+.6f}", f"{losses_of_epsilon[name]:+.6f}")
                for name, loss in losses_of_coins.items()
            ),
        ),
        """
        The loss is ln 3 = 1.0986, whichever is asked. *The lecture calls mechanism 2 the better one; at ε = ln 3 they are
        the same, and mechanism 2 can be set to any other ε.* At ε = 0 every answer is a fair coin.
        """,
    )
    return


@app.cell
def picture_of_losses(Plot, drawing):
    Plot("Privacy loss against the probability of a true answer: ln 3 at three quarters.", drawing.of_losses)
    return


@app.cell
def general(Prose):
    Prose("""
    ## General mechanism: noise

    f(x | μ, b) = e^(−|x − μ|/b)/(2b). *(The lecture calls b the variance; the variance is 2b².)* Beside the sharper peak
    that the lecture names, the tails are heavier than normal ones: they fall as e^(−x) and not as e^(−x²), and that is
    what makes a bounded ratio, and δ = 0, possible at all.
    """)
    return


@app.cell
def picture_of_laplace(Plot, drawing):
    Plot(
        "Laplace and normal densities of the same variance: the Laplace one has a sharper peak and heavier tails.",
        drawing.of_laplace_and_normal,
    )
    return


@app.cell
def widgets(mo):
    people = mo.ui.slider(start=10, stop=2000, step=10, value=100, label="n", show_value=True)
    tenths = mo.ui.slider(start=1, stop=30, step=1, value=10, label="ε, in tenths", show_value=True)
    mo.vstack([people, tenths])
    return people, tenths


@app.cell
def risk(CentralLaplace, Fraction, SeededRng, np, people, tenths):
    n, epsilon = people.value, Fraction(tenths.value, 10)
    noisy_mean = CentralLaplace(Fraction(1, n), epsilon, Fraction(1, n * 256), exact=True)
    source = SeededRng(18)
    noise = np.array([float(noisy_mean.release(0, source)) for _ in range(10_000)])
    right_risk = 2 / (float(epsilon) * n) ** 2
    measured_risk = float((noise**2).mean())
    return epsilon, measured_risk, n, right_risk


@app.cell
def risk_in_words(Prose, epsilon, measured_risk, n, right_risk, table):
    Prose(
        f"""
        ## Risk of a mean

        The mean of n answers of 0 or 1 has sensitivity 1/n, so the noise is Lap(1/(εn)), and the risk, the mean squared
        error, is its variance. For n = {n} and ε = {float(epsilon):g}:
        """,
        table(
            ("", "value"),
            ("2/(ε²n²), right", f"{right_risk:.3g}"),
            ("measured, 10 000 draws", f"{measured_risk:.3g}"),
            ("1/(ε²n²), as the lecture's risk has it", f"{right_risk / 2:.3g}"),
            ("1/(εn), as the lecture's variance has it", f"{1 / (float(epsilon) * n):.3g}"),
        ),
        """
        *The lecture's condition ε < 1/n is the wrong way round: below 1/n the noise exceeds whatever there is to say.*
        """,
    )
    return


@app.cell
def neighbours(Prose, epsilon, math, n):
    k = n // 2
    mean = k / n
    moves = {
        "one more 0": abs(mean - k / (n + 1)),
        "one more 1": abs(mean - (k + 1) / (n + 1)),
        "one 0 less": abs(mean - k / (n - 1)),
        "one 1 less": abs(mean - (k - 1) / (n - 1)),
    }
    largest_loss = float(epsilon) * n * max(moves.values())
    lines = "; ".join(f"{name} moves it by {move:.5f}" for name, move in moves.items())
    far = 3.0
    own_noise = float(epsilon) * far + math.log(n / (n + 1))
    Prose(f"""
    ## The privacy loss of a mean

    x = (n − k, k) stands for n − k zeros and k ones; its neighbours have one more or one less of either. With k = {k}
    of {n}: {lines}. Each is at most 1/n, so that noise of scale 1/(εn) loses at most {largest_loss:.3f} ≤ ε.

    *But neighbours of different size change n, and the noise depends on n. If each used its own, the ratio would grow
    without bound in the tails* (at z = {far:g} + μ already by about {own_noise:.2f}): n has to be public and fixed, as in
    hush, where a device's report has noise of its own and nothing depends on how many take part.
    """)
    return largest_loss, moves


@app.cell
def picture_of_unequal(Plot, drawing, epsilon, n):
    Plot(
        "Log-ratios of densities: bounded by ±ε with a fixed n, and growing without bound where each side uses its own n.",
        drawing.of_unequal_noise,
        min(n, 20),
        float(epsilon),
    )
    return


@app.cell
def vectors(Prose):
    Prose("""
    ## Vectors, and sensitivity

    k numbers at once take noise of scale α/ε each, with α = Δf = sup ‖f(x) − f(y)‖₁ over neighbours: the exponents of the
    product add up to ε·‖f(x) − f(y)‖₁/Δf ≤ ε. *(The lecture's heading, "query output is not a real number", is about
    vectors; an absolute value is missing in its last product.)* A large Δf at a fixed ε warns of much noise. *It is not
    "normally small": for a sum of unbounded values it is infinite, and the mechanism works for functions of finite
    sensitivity only.* The chapter on the mechanism computes sensitivities by enumeration.
    """)
    return


@app.cell
def delta(gaussian):
    d = 1e-6
    calibrations = {
        0.1: (gaussian.classical_sigma(0.1, d), gaussian.analytic_sigma(0.1, d)),
        0.9: (gaussian.classical_sigma(0.9, d), gaussian.analytic_sigma(0.9, d)),
        1.0: (None, gaussian.analytic_sigma(1.0, d)),
        4.0: (None, gaussian.analytic_sigma(4.0, d)),
    }
    delta_of_classical = gaussian.analytic_delta(calibrations[0.9][0], 0.9)
    return calibrations, d, delta_of_classical


@app.cell
def delta_in_words(Prose, calibrations, d, delta_of_classical, math, table):
    Prose(
        f"""
        ## (ε, δ)

        For small ε, e^ε is about 1 + ε (*not identical to it*, e^0.1 = {math.exp(0.1):.4f}). With a δ the promise is
        P(M(x) ∈ E) ≤ e^ε·P(M(y) ∈ E) + δ for all neighbours, ‖x − y‖₁ = 1. *(The "= 1" is missing twice.)* *The lecture
        says that ε-DP then holds with probability 1/(1 − δ), which exceeds 1; 1 − δ is meant, and that is sufficient for
        (ε, δ), not the same. Nor is δ < 1/n enough: publishing the record of one random person has δ = 1/n.*

        Gaussian noise has such a δ. *The lecture's σ = Δ₂·√(c·ln(1/δ))/ε with c² ≥ 2 ln(1.25/δ) mixes two forms of one
        bound*; right is σ ≥ c·Δ₂/ε, c² > 2 ln(1.25/δ), and that for ε < 1 only. The analytic calibration (Balle and Wang
        2018) is exact for every ε. For δ = {d:g} and Δ₂ = 1:
        """,
        table(
            ("ε", "classical σ", "analytic σ", "Laplace, √2/ε, δ = 0"),
            *(
                (
                    f"{one:g}",
                    "–" if classical is None else f"{classical:.3f}",
                    f"{analytic:.3f}",
                    f"{math.sqrt(2) / one:.3f}",
                )
                for one, (classical, analytic) in calibrations.items()
            ),
        ),
        f"""
        At ε = 0.9 the classical σ has a true δ of {delta_of_classical:.2g}. For *one* number Laplace noise is smaller and
        needs no δ; Gauss pays where many numbers move a little each, since its sensitivity is the ℓ₂ norm: for d
        numbers that all move by 1, √d instead of d. That is what the lecture's last lines on risk say, √d for d (*they
        name no norm and no reference*).
        """,
    )
    return


@app.cell
def picture_of_calibrations(Plot, d, drawing):
    Plot(
        "Standard deviation of the noise against ε: Gaussian by both calibrations, the classical above, and Laplace below.",
        drawing.of_calibrations,
        d,
    )
    return


@app.cell
def honest(Fraction, Prose, RandomizedResponse, simulate, table):
    run = simulate("survey", clients=2000, epsilon="1.098612", engine="memory", seed=18)
    low, high = run.result.intervals["reporters"]
    variance = RandomizedResponse.from_epsilon(Fraction("1.098612")).worst_variance
    Prose(
        """
        ## Mechanism 2, deployed

        2000 devices answer as mechanism 2 does, at ε = 1.098612, just below ln 3, over a real client and a real
        aggregator.
        """,
        table(
            ("true share", "estimate", "95 % interval", "deviation by the formula"),
            (
                f"{100 * run.truth['reporters']:.1f} %",
                f"{100 * run.result.estimate.mean:.1f} %",
                f"{100 * low:.1f} to {100 * high:.1f} %",
                f"{100 * (variance / 2000) ** 0.5:.2f} %",
            ),
        ),
        """
        hush has no δ anywhere: a device that fails with probability δ fails for somebody.
        """,
    )
    return (run,)


@app.cell
def exercise(Prose, mo):
    from hush_tour.exercises import EXERCISES

    question = EXERCISES["lecture"]
    answer = mo.ui.number(label="your answer")
    Prose(
        f"""
        ## Exercise

        {question.question}

        Check an answer here, or with `hush tour lecture --answer NUMBER`.
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

"""How many people does a question need? A simulation tells, before a single device is asked.

python docs/examples/simulate.py
"""

import hush

AGES = {"kind": "number", "lower": 0, "upper": 110, "unit": "years"}  # from public knowledge, never from the data


def main() -> None:
    for people in (100, 400, 1600):
        run = hush.simulate("heights", clients=people, epsilon=2, engine="memory", seed=7)
        low, high = run.result.intervals["reporters"]
        print(f"{people:5} people: {low:.0f} to {high:.0f} cm, in truth {run.truth['reporters']:.0f} cm")

    own = hush.simulate(data=[31, 45, 62, 27, 58] * 100, domain=AGES, epsilon=2, engine="memory")
    print(f"your own data: {own.result.mean:.0f} years, in truth {own.truth['reporters']:.0f}")


if __name__ == "__main__":
    main()

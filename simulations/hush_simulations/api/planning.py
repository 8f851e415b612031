"""`hush.plan` and `hush.feasible`: sample size, epsilon and error, before anybody is asked."""

from collections.abc import Mapping, Sequence
from fractions import Fraction

from hush_common.domain import KINDS, Domain, Readable
from hush_common.epsilon import parse_epsilon
from hush_common.errors import OptionError
from hush_common.task import make_task
from hush_simulations.api.simulate import Epsilon, SimulationOptions, confidence_of, epsilon_of, warn_of_codes, whole_of
from hush_simulations.engines.experiment import Whole
from hush_simulations.planning.asking import parse_error
from hush_simulations.planning.feasibility import EPSILONS, GOAL, Feasibility, feasibility
from hush_simulations.planning.plan import MOST_PEOPLE, OwnValues, Plan, PlanQuestion, own_values, solve
from hush_simulations.scenarios.population import Observed

_PEOPLE = Whole(1, MOST_PEOPLE, "how many people answer", 5000)


def plan(
    domain: Mapping[str, object] | Domain,
    data: object = None,
    *,
    people: int | None = None,
    epsilon: Epsilon | None = None,
    error: str | float | None = None,
    confidence: float | None = 0.95,
    column: str | None = None,
    missing: str | None = None,
    csv: Mapping[str, str] | None = None,
) -> Plan:
    """Compute people, epsilon or error from the other two, for every mechanism that fits.

    Args:
        domain: the legal values, as in a task file or as an object.
        data: values whose variance counts instead of the largest possible one, as of `hush.simulate`.
        people: how many answer.
        epsilon: of one report.
        error: half-width of the confidence interval: a number in the unit of the value, or "5%" of its range.
        confidence: of the interval; None for the root mean square error.
        column: of `data`, as of `hush.simulate`.
        missing: of `data`, as of `hush.simulate`.
        csv: of `data`, as of `hush.simulate`.

    Raises:
        OptionError: an argument that cannot be used, or not two of people, epsilon and error.
        TaskError: the domain is not legal.
    """
    given = {"people": people, "epsilon": epsilon, "error": error}
    if sum(value is not None for value in given.values()) != 2:  # noqa: PLR2004 - of the three
        raise OptionError("people, epsilon, error", "two of them give the third; pass two, as in epsilon=1, error='5%'")
    asked, own, _ = _asked(data, domain, column, missing, csv)
    return solve(
        PlanQuestion(
            domain=asked,
            people=None if people is None else whole_of("people", people, _PEOPLE),
            epsilon=None if epsilon is None else _epsilon(epsilon),
            error=None if error is None else parse_error(str(error), asked, "error"),
            confidence=None if confidence is None else confidence_of(confidence),
            data=own,
        )
    )


def feasible(
    data: object = None,
    domain: Mapping[str, object] | Domain | None = None,
    *,
    people: int | None = None,
    epsilons: Sequence[Epsilon] | None = None,
    error: str | float | None = None,
    confidence: float = 0.95,
    column: str | None = None,
    missing: str | None = None,
    csv: Mapping[str, str] | None = None,
) -> Feasibility:
    """Say what can be learned from people, how precisely, at which epsilon.

    For each epsilon: the interval that these people give, how many would give a wanted one, the mechanism to take, what
    it means for a person, and what a trusted collector would have. By the exact law of the tally, without a simulation.

    Args:
        data: values, as of `hush.simulate`: a column of a data frame, a list, a file. Or a domain alone.
        domain: the legal values of `data`, from public knowledge: it never comes from the data.
        people: how many answer; as many as `data` has rows if left out.
        epsilons: to compare; 0.25, 0.5, 1, 2 and 4 if left out.
        error: the wanted half-width: a number in the unit of the value, or "5%" of its range; 1 % if left out.
        confidence: of the intervals.
        column: of `data`, as of `hush.simulate`.
        missing: of `data`, as of `hush.simulate`.
        csv: of `data`, as of `hush.simulate`.

    Raises:
        OptionError: an argument that cannot be used; without a domain it says how to state one.
        TaskError: the domain is not legal.
    """
    if domain is None and _is_domain(data):
        data, domain = None, data
    asked, own, rows = _asked(data, domain, column, missing, csv)
    count = rows if people is None else whole_of("people", people, _PEOPLE)
    if count is None and error is None:
        raise OptionError("people", "is missing; pass how many people answer, as in people=5000, or the error you want")
    return feasibility(
        asked,
        people=count,
        epsilons=EPSILONS if epsilons is None else tuple(map(_epsilon, epsilons)),
        goal=GOAL if error is None else parse_error(str(error), asked, "error"),
        confidence=confidence_of(confidence),
        data=own,
    )


def _epsilon(epsilon: Epsilon) -> Fraction:
    return parse_epsilon(epsilon_of(epsilon))


def _is_domain(given: object) -> bool:
    return isinstance(given, Readable) or (isinstance(given, Mapping) and given.get("kind") in KINDS)


def _asked(
    data: object,
    domain: Mapping[str, object] | Domain | None,
    column: str | None,
    missing: str | None,
    csv: Mapping[str, str] | None,
) -> tuple[Domain, OwnValues | None, int | None]:
    """Return the domain, the known values, and the number of rows."""
    if data is None:
        if domain is None:
            raise OptionError("data", "is missing; pass values and their domain, or a domain and people=...")
        document = domain.document() if isinstance(domain, Readable) else domain
        return make_task({"id": "own-data", "epsilon": "1", "domain": document}).domain, None, None
    scenario = SimulationOptions(data=data, domain=domain, column=column, missing=missing, csv=csv).asked()
    asked, rows = scenario.task().domain, scenario.population
    if not isinstance(rows, Observed):
        raise TypeError("data are values of people who were observed")
    if asked.value_names:
        raise OptionError("domain", "is of vectors, and a plan from data is about one column; pass one and its domain")
    warn_of_codes(rows, asked)
    return asked, own_values(asked, rows.values, rows.to_document(), rows.name), len(rows.values)

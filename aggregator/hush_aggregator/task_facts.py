"""Task facts: what is told of a task of a store, by `hush task list` and over HTTP."""

from hush_aggregator.store.base import StoreReader, TaskRow

__all__ = ["facts_of"]


def facts_of(store: StoreReader, row: TaskRow) -> dict[str, str | int]:
    """Who gave it, what is to become of it, and who publishes it; `n` is of its latest round. Blocks.

    Raises:
        StoreError: the store cannot be read.
    """
    owner = {"": "nobody yet", store.public_identity: "this store"}.get(row.owner, row.owner)
    latest = store.latest_round(row.digest)
    return {
        "task": row.id,
        "digest": row.digest.hex(),
        "origin": row.origin.value,
        "state": row.state.value if row.payload else "forgotten",
        "owner": owner,
        "round": latest,
        "n": store.tally(row.digest, latest).n,
    }

"""A device that answers one question, once: a second run with the same state returns the first receipt.

python docs/examples/device.py mqtt://broker.local sensor-17 /var/lib/hush 172.0
"""

import sys

import hush


def main(broker: str, device: str, state: str, height: float) -> None:
    with hush.SyncClient(broker, device=device, state=state) as client:
        receipt = client.report("heights", height)
        statement = client.ledger()
    print(f"{receipt.status}: spent {float(statement.spent):g} in all")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4]))

"""The child's loop: receive a batch of requests, perform them on the reference, send the outcomes.

Run as a module by the reference's own interpreter with two inherited file descriptors: requests in, outcomes out. What
the reference prints goes to the child's standard error, which the parent keeps for the report of a crash.
"""

import os
import sys

from tests.reference.wire import Side, receive, send


def main() -> None:
    requests, outcomes = (os.fdopen(int(number), mode) for number, mode in zip(sys.argv[1:], ("rb", "wb"), strict=True))
    import mlx.core as mx

    mx.set_default_device(mx.cpu)
    side = Side(mx)
    while True:
        try:
            batch = receive(requests)
        except EOFError:
            return
        send(outcomes, [side.perform(request) for request in batch])


if __name__ == "__main__":
    main()

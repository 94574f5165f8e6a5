"""`python -m scheduler` is `agentenv-scheduler`, and both begin here."""

import gc
import sys


def main() -> None:
    """The console script. A health probe, which is started every few seconds, goes past the command line's imports."""
    if sys.argv[1:2] == ["grpc-health-probe"]:
        from scheduler.health_probe import main as probe

        sys.exit(probe(sys.argv[2:]))
    gc.disable()  # imports leave nothing to collect; `main` enables it when they are done
    try:
        from scheduler.cli import main as command_line

        command_line()
    except KeyboardInterrupt:  # before the command had begun
        sys.exit(130)


if __name__ == "__main__":
    main()

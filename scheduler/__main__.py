"""`python -m scheduler` is `agentenv-scheduler`."""

from scheduler.cli import main

if __name__ == "__main__":
    main()

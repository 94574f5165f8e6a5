"""The version, which is the server's of the same release."""

__version__ = "0.1.0"
USER_AGENT = f"agentenv-scheduler-client/{__version__}"

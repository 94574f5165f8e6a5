# syntax=docker/dockerfile:1.12.0

FROM python:3.13.7-slim-bookworm AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python -m venv /opt/build && python -m venv /opt/scheduler
WORKDIR /src
# Exact versions, and nothing but files whose hashes are known; see requirements/lock.sh.
COPY requirements ./requirements
RUN /opt/build/bin/pip install --require-hashes --no-deps --requirement requirements/build.txt \
    && /opt/scheduler/bin/pip install --require-hashes --no-deps --requirement requirements/image.txt
COPY pyproject.toml README.md LICENSE ./
COPY scheduler ./scheduler
COPY lua ./lua
COPY clients/python/agentenv_scheduler_client ./clients/python/agentenv_scheduler_client
RUN /opt/build/bin/pip wheel --no-deps --no-index --no-build-isolation --wheel-dir /opt/wheel . \
    && /opt/scheduler/bin/pip install --no-deps --no-index /opt/wheel/*.whl \
    && /opt/scheduler/bin/pip check \
    && /opt/scheduler/bin/pip uninstall --yes pip

FROM python:3.13.7-slim-bookworm
LABEL org.opencontainers.image.title="agentenv-scheduler" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/scheduler /opt/scheduler
# AgentENV's manifests probe with this name and give it a second, so it is a file of its own that imports no package.
COPY scheduler/health_probe.py /opt/scheduler/health_probe.py
COPY --chmod=755 <<'PROBE' /grpc_health_probe
#!/bin/sh
exec /opt/scheduler/bin/python -I -S /opt/scheduler/health_probe.py "$@"
PROBE
# AgentENV's program is called by this name, should a manifest say so.
RUN ln -s /opt/scheduler/bin/agentenv-scheduler /scheduler
# AgentENV's image has its configuration here, and a file mounted in its place is read; this one says nothing.
COPY <<'CONFIG' /config/default.json
{"scheduler": {}}
CONFIG
# SCHEDULER_DEFAULT_… is for what an image decides: a configuration file goes before it, as the environment does.
ENV PATH=/opt/scheduler/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    SCHEDULER_CONFIG=/config/default.json \
    SCHEDULER_DEFAULT_GRPC_LISTEN_ADDR=:9090 \
    SCHEDULER_DEFAULT_METRICS_LISTEN_ADDR=:9101
# HTTP stays on loopback until it is given API keys and a host: SCHEDULER_API_KEYS_FILE, SCHEDULER_HTTP_HOST.
# Without keys or client certificates the gRPC port serves AgentENV's calls alone, and the network must guard those.
EXPOSE 8090 9090 9101
USER 65532:65532
HEALTHCHECK --interval=10s --timeout=5s --start-period=10s CMD ["/grpc_health_probe", "-addr=127.0.0.1:9090"]
ENTRYPOINT ["agentenv-scheduler"]
CMD ["serve"]

"""The gRPC interface: `scheduler.v1` as AgentENV's gateway and nodes use it, our own reservations service, and
health.

    server = create_server(services, GrpcOptions(address="127.0.0.1:9090"))
    await server.start()
    …
    await server.stop()
"""

from scheduler.api.grpc.options import GrpcOptions, TlsFiles
from scheduler.api.grpc.server import GrpcServer, create_server

__all__ = ["GrpcOptions", "GrpcServer", "TlsFiles", "create_server"]

"""A gRPC service without a schema: messages are bytes, and every call ends with the trailer `x-after: whole`.

    grpc_server.py [CERT KEY]    prints `listening on PORT`
"""

import sys
from concurrent import futures
from pathlib import Path

import grpc

SERVICE = "ledger.Ledger"


def ends_whole(context):
    context.set_trailing_metadata((("x-after", "whole"),))


def unary(message, context):
    ends_whole(context)
    return message


def client_stream(messages, context):
    """How many bytes came in how many messages."""
    sizes = [len(message) for message in messages]
    ends_whole(context)
    return f"{sum(sizes)} in {len(sizes)}".encode()


def server_stream(message, context):
    """As many messages of 1 MiB as the request says, each of its own number."""
    ends_whole(context)
    for number in range(int(message)):
        yield bytes([number]) * (1 << 20)


def both_ways(messages, context):
    """Every message is answered before the next one is read."""
    ends_whole(context)
    yield from messages


def main(certificate):
    handlers = {
        "Unary": grpc.unary_unary_rpc_method_handler(unary),
        "Reuse": grpc.unary_unary_rpc_method_handler(unary),
        "ClientStream": grpc.stream_unary_rpc_method_handler(client_stream),
        "ServerStream": grpc.unary_stream_rpc_method_handler(server_stream),
        "BothWays": grpc.stream_stream_rpc_method_handler(both_ways),
    }
    server = grpc.server(futures.ThreadPoolExecutor(8))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    if certificate:
        chain, key = (Path(name).read_bytes() for name in certificate)
        port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([(key, chain)]))
    else:
        port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print("listening on", port, flush=True)
    server.wait_for_termination()


if __name__ == "__main__":
    main(sys.argv[1:])

"""The service behind the gateway: it answers a POST with its body, and a GET with a large download.

    origin.py [CERT KEY]    HTTP/1.1, over TLS with a certificate; prints `listening on PORT`

`X-Framing` of an answer says how the body arrived, and `X-Sha256` what the body of the answer has to be.
"""

import hashlib
import http.server
import random
import ssl
import sys

DOWNLOAD = random.Random(7).randbytes(32 << 20)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self):
        if "chunked" in self.headers.get("Transfer-Encoding", "").lower():
            self.answer(self.read_chunks(), "chunked")
        else:
            self.answer(self.rfile.read(int(self.headers.get("Content-Length", 0))), "length")

    def do_GET(self):
        self.answer(DOWNLOAD, "none")

    def read_chunks(self):
        body = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return body

    def answer(self, body, framing):
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("X-Framing", framing)
        self.send_header("X-Sha256", hashlib.sha256(body).hexdigest())
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def main(certificate):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate)
        # The handshake belongs to the connection's own thread.
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    print("listening on", server.server_address[1], flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main(sys.argv[1:])

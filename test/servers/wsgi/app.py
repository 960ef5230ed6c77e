"""A WSGI application that says which of its routes served a request.

Run as a program it serves itself on a unix socket, with the server that the standard library has.
"""

import os
import socketserver
import sys
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from flask import Flask, Response
from werkzeug.routing import PathConverter


class Everything(PathConverter):
    """All that follows. Flask's own <path:x> is not empty and does not begin with a slash."""

    regex = ".*"
    part_isolating = False


app = Flask(__name__)
app.url_map.converters["everything"] = Everything


def serve(rule, name):
    """Add a route, which answers with its name whatever it is called with."""
    app.add_url_rule(rule, rule, lambda **_: Response("", headers={"X-Route": name}))


serve("/public/<everything:rest>", "public")
serve("/health", "health")
serve("/v1/render", "render")
serve("/v1/chat", "chat")
serve("/events", "events")
serve("/events/<everything:rest>", "events")
serve("/exports/<id>", "export")
serve("/tree/<everything:rest>", "tree")
serve("/<everything:rest>", "other")


class Server(socketserver.ThreadingMixIn, WSGIServer):
    """The standard library's server on a unix socket."""

    address_family = socketserver.UnixStreamServer.address_family
    daemon_threads = True

    def server_bind(self):
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = "localhost", 80
        self.setup_environ()


class Handler(WSGIRequestHandler):
    """Keeps quiet, and knows that callers on a unix socket have no address."""

    def address_string(self):
        return "localhost"

    def get_environ(self):
        self.client_address = ("localhost", 0)
        return super().get_environ()

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    path = sys.argv[1]
    server = Server(path + ".new", Handler)
    server.set_app(app)
    os.rename(path + ".new", path)
    server.serve_forever()

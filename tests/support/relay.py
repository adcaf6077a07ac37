"""A port of its own for a server that has another one: what stood away is back, for a test, when its relay starts."""

from __future__ import annotations

import socket
import socketserver
import threading


class Relay(socketserver.ThreadingTCPServer):
    """Hands bytes on to a server, so that it is reached at another port."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, port: int, target: tuple[str, int]) -> None:
        super().__init__(("127.0.0.1", port), _RelayConnection)
        self.target = target


class _RelayConnection(socketserver.BaseRequestHandler):
    server: Relay

    def handle(self) -> None:
        with socket.create_connection(self.server.target) as behind:
            answers = threading.Thread(target=hand_on, args=(behind, self.request), daemon=True)
            answers.start()
            hand_on(self.request, behind)
            answers.join()


def hand_on(source: socket.socket, to: socket.socket) -> None:
    while data := source.recv(65536):
        to.sendall(data)
    to.shutdown(socket.SHUT_WR)

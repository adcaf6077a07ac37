"""The command that starts vLLM for one model of the catalog.

vLLM is its own server, so no code of ours runs in its process: the GPU unit's parent starts this command as
its engine child and reaches it over the Unix socket. Here stands what the service relies on whatever the
model; what differs from model to model (parsers, dtype, grammar backend) stands in the catalog and comes
last, so that it wins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from anex.catalog import ModelSpec

# Workers send media as data: URLs, fetched by the guarded client. With a reserved name (RFC 2606) as the only
# domain allowed, the engine refuses a URL that reached it all the same.
_NO_MEDIA_DOMAIN = "none.invalid"

_OFFLINE = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}


def vllm_command(
    spec: ModelSpec, socket: Path, files: Path, engine_python: Path
) -> tuple[list[str], dict[str, str]]:
    """Return the engine child's argument list and the variables to add to its environment.

    ``socket`` is the Unix socket to serve on (at most 107 bytes of path, its folder at most 70: vLLM adds sockets of its own
    there, whose names are UUIDs), ``files`` the model's folder as
    made by ``config.stack.weights``, ``engine_python`` the interpreter that has vLLM. The server runs
    children of its own: start it in a session of its own and kill the group.
    """
    argv = [str(engine_python), "-m", "vllm.entrypoints.cli.main", "serve", str(files)]
    argv += ["--uds", str(socket), "--served-model-name", spec.id]
    argv += ["--max-model-len", str(spec.served_context_tokens)]
    argv += ["--max-num-seqs", str(spec.engine.max_num_seqs)]
    argv += ["--tensor-parallel-size", str(spec.engine.tensor_parallel)]
    argv += ["--scheduling-policy", "priority", "--allowed-media-domains", _NO_MEDIA_DOMAIN]
    # The access log is a line a row; the documentation pages load scripts from the network.
    argv += ["--disable-uvicorn-access-log", "--disable-fastapi-docs"]
    # Its parts speak over sockets too, which a killed engine leaves behind: in the folder that is tidied.
    added = _OFFLINE | {"VLLM_RPC_BASE_PATH": str(socket.parent)}
    return [*argv, *spec.engine.args], added | dict(spec.engine.environment)

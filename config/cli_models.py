"""``anex models``: what the catalog offers, and its tokenizer files in the bucket."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from config.cli_output import format_nanos, json_option, print_json, print_table
from config.pull import pull_model
from config.wiring import build_catalog, build_object_store, read_settings

if TYPE_CHECKING:
    from anex.catalog import ModelSpec


@click.group()
def models_group() -> None:
    """List the models on offer and pull their tokenizer files."""


@models_group.command("list")
@json_option
def list_command(*, as_json: bool) -> None:
    """List the models that this installation offers."""
    specs = list(build_catalog(read_settings()))
    if as_json:
        print_json({"models": [_describe(spec) for spec in specs]})
        return
    print_table(
        ("model", "kind", "context", "revision", "engine", "in / 1M tokens", "out / 1M tokens", "minimum"),
        [
            (
                spec.id,
                spec.kind,
                spec.context_tokens,
                spec.revision,
                spec.engine.kind,
                format_nanos(spec.prices.input_nanos_per_million),
                format_nanos(spec.prices.output_nanos_per_million),
                f"{spec.minimum_cents} cents",
            )
            for spec in specs
        ],
    )


@models_group.command("pull")
@click.argument("model_ids", metavar="[MODEL]...", nargs=-1)
@json_option
def pull_command(model_ids: tuple[str, ...], *, as_json: bool) -> None:
    """Put tokenizer files into the region's bucket, where planners read them; of all models when none is named.

    A model's files are made first where they don't stand in the data folder yet; weights from a hub are downloaded whole.
    """
    settings = read_settings()
    catalog, objects = build_catalog(settings), build_object_store(settings)
    specs = [catalog.get(model_id) for model_id in model_ids] or list(catalog)
    pulled = {
        spec.id: pull_model(spec, objects, settings, lambda line: click.echo(line, err=True))
        for spec in specs
    }
    if as_json:
        print_json({"pulled": pulled})
        return
    for model_id, keys in pulled.items():
        names = ", ".join(key.rpartition("/")[2] for key in keys)
        click.echo(f"{model_id}: {names or 'it counts by bytes and needs no files'}")


def _describe(spec: ModelSpec) -> dict[str, Any]:
    return {
        "id": spec.id,
        "kind": spec.kind,
        "modalities": sorted(spec.modalities),
        "context_tokens": spec.context_tokens,
        "output_max_tokens": spec.output_max_tokens,
        "revision": spec.revision,
        "queue": spec.queue,
        "engine": spec.engine.kind,
        "input_nanos_per_million": spec.prices.input_nanos_per_million,
        "output_nanos_per_million": spec.prices.output_nanos_per_million,
        "minimum_cents": spec.minimum_cents,
        "realtime": spec.realtime,
    }

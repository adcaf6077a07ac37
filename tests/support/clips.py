"""Real clips, each made once a session by ffmpeg: every container with the codecs that go into it, and odd ones."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import ffmpeg

from config.stack.ffmpeg import FfmpegPrograms, find_ffmpeg

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_TIMEOUT_SECONDS = 60.0


@dataclass(frozen=True)
class Recipe:
    """How one clip is made."""

    format: str
    muxer: str
    video: str | None = None
    audio: str | None = None
    seconds: str = "1.234"
    rate: int = 25
    piped: bool = False
    """Written to a pipe, so that the writer can't come back to its heads."""
    options: Mapping[str, Any] = field(default_factory=dict)


_MP4 = Recipe("mp4", "mp4", "libx264", "aac")
_WEBM = Recipe("webm", "webm", "libvpx", "libopus", options={"deadline": "realtime"})
_WAV = Recipe("wav", "wav", audio="pcm_s16le")
_FRAGMENTS = {"movflags": "frag_keyframe+empty_moov+default_base_moof", "g": 5}


def _vary(recipe: Recipe, **changes: Any) -> Recipe:
    return Recipe(**{**vars(recipe), **changes})


RECIPES: Mapping[str, Recipe] = {
    "mp4-h264": _MP4,
    "mp4-h264-faststart": _vary(_MP4, options={"movflags": "faststart"}),
    "mp4-h265": _vary(_MP4, video="libx265", options={"x265-params": "log-level=none"}),
    "mp4-av1": _vary(_MP4, video="libsvtav1", audio=None, options={"preset": 12}),
    "mp4-vp9": _vary(_MP4, video="libvpx-vp9", audio="libopus", options={"deadline": "realtime"}),
    "mp4-fragments": _vary(_MP4, options=_FRAGMENTS),
    "mp4-fragments-after-samples": _vary(_MP4, options={"movflags": "frag_keyframe", "g": 5}),
    "mp4-fragments-indexed": _vary(
        _MP4, options={"movflags": "frag_keyframe+empty_moov+global_sidx+dash", "g": 5}
    ),
    "mp4-fragments-live": _vary(_MP4, piped=True, options=_FRAGMENTS),
    "mp4-2fps": _vary(_MP4, audio=None, seconds="3", rate=2),
    "mp4-one-frame": _vary(_MP4, audio=None, seconds="0.9", rate=1),
    "mp4-cut-by-edits": _vary(_MP4, seconds="4", options={"ss": "1.5", "c": "copy"}),
    "mov-h264": _vary(_MP4, format="mov", muxer="mov", audio="pcm_s16le"),
    "mov-mpeg4": _vary(_MP4, format="mov", muxer="mov", video="mpeg4"),
    "m4a-aac": Recipe("m4a", "ipod", audio="aac"),
    "m4a-alac": Recipe("m4a", "ipod", audio="alac"),
    "webm-vp8": _WEBM,
    "webm-vp9": _vary(_WEBM, video="libvpx-vp9"),
    "webm-sound": _vary(_WEBM, video=None, options={}),
    "webm-one-frame": _vary(_WEBM, audio=None, seconds="0.9", rate=1),
    "webm-live": _vary(_WEBM, piped=True, options={"deadline": "realtime", "cluster_time_limit": 300}),
    "webm-2fps": _vary(_WEBM, audio=None, seconds="3", rate=2),
    "mkv-h264": Recipe("mkv", "matroska", "libx264", "aac"),
    "mkv-h264-flac": Recipe("mkv", "matroska", "libx264", "flac", seconds="2.777"),
    "mkv-live": Recipe("mkv", "matroska", "libx264", "libmp3lame", piped=True),
    "wav-16": _WAV,
    "wav-24": _vary(_WAV, audio="pcm_s24le", options={"ac": 6}),
    "wav-float": _vary(_WAV, audio="pcm_f32le"),
    "wav-mulaw": _vary(_WAV, audio="pcm_mulaw"),
    "wav-adpcm": _vary(_WAV, audio="adpcm_ms"),
    "wav-rf64": _vary(_WAV, options={"rf64": "always"}),
    "wav-piped": _vary(_WAV, piped=True),
    "aiff": Recipe("aiff", "aiff", audio="pcm_s16be"),
    "aifc": Recipe("aiff", "aiff", audio="pcm_s16le"),
    "flac": Recipe("flac", "flac", audio="flac"),
    "ogg-vorbis": Recipe("ogg", "ogg", audio="vorbis", options={"strict": "experimental", "ac": 2}),
    "ogg-flac": Recipe("ogg", "ogg", audio="flac"),
    "ogg-opus": Recipe("ogg", "ogg", audio="libopus"),
    "opus": Recipe("opus", "opus", audio="libopus", seconds="7.31"),
    "mp3": Recipe("mp3", "mp3", audio="libmp3lame"),
    "mp3-vbr": Recipe("mp3", "mp3", audio="libmp3lame", options={"q:a": 5, "ac": 2}),
    "mp3-low-rate": Recipe("mp3", "mp3", audio="libmp3lame", options={"ar": 16_000}),
    "mp3-tagged": Recipe("mp3", "mp3", audio="libmp3lame", options={"metadata": f"title={'x' * 9000}"}),
}
UNSTATED: Mapping[str, Recipe] = {
    "mp3-bare": Recipe("mp3", "mp3", audio="libmp3lame", options={"write_xing": 0}),
    "aac": Recipe("aac", "adts", audio="aac"),
    "flac-piped": Recipe("flac", "flac", audio="flac", piped=True),
    "avi": Recipe("avi", "avi", "mpeg4", "libmp3lame"),
    "avi-2fps": Recipe("avi", "avi", "mpeg4", seconds="3", rate=2),
    "avi-one-frame": Recipe("avi", "avi", "mpeg4", seconds="0.9", rate=1),
}
"""Clips in whose container no length is stated, or by contract none is looked for."""


class ClipShelf:
    """Clips by the name of their recipe."""

    def __init__(self, programs: FfmpegPrograms, folder: Path) -> None:
        self.programs = programs
        self._folder = folder
        self._made: dict[str, Path] = {}

    def path(self, name: str) -> Path:
        """Return the file of a clip, made now if it is the first time."""
        if name not in self._made:
            recipe = {**RECIPES, **UNSTATED}[name]
            path = self._folder / f"{name}.{recipe.format}"
            path.write_bytes(self._make_from_a_clip(recipe) if "c" in recipe.options else self._make(recipe))
            self._made[name] = path
        return self._made[name]

    def read(self, name: str) -> bytes:
        """Return the bytes of a clip."""
        return self.path(name).read_bytes()

    def ask(self, path: Path, *options: str) -> dict[str, Any]:
        """Return what ffprobe says of a file."""
        command = [str(self.programs.ffprobe), "-v", "error", "-of", "json", "-show_format", "-show_streams"]
        run = subprocess.run(
            [*command, *options, str(path)], capture_output=True, check=True, timeout=_TIMEOUT_SECONDS
        )
        answer: dict[str, Any] = json.loads(run.stdout)
        return answer

    def seconds(self, name: str) -> Fraction:
        """Return the length that ffprobe reports for the whole file."""
        return Fraction(self.ask(self.path(name))["format"]["duration"])

    def _make(self, recipe: Recipe) -> bytes:
        inputs = []
        if recipe.video:
            source = f"testsrc=size=64x64:rate={recipe.rate}:duration={recipe.seconds}"
            inputs.append(ffmpeg.input(source, f="lavfi"))
        if recipe.audio:
            inputs.append(ffmpeg.input(f"sine=sample_rate=48000:duration={recipe.seconds}", f="lavfi"))
        options = {name: value for name, value in vars(recipe).items() if value}
        codecs = {"vcodec": options.get("video"), "acodec": options.get("audio"), "pix_fmt": "yuv420p"}
        wanted = {"video": ("vcodec", "pix_fmt"), "audio": ("acodec",)}
        chosen = {key: codecs[key] for kind, keys in wanted.items() if options.get(kind) for key in keys}
        return self._run(inputs, recipe, {**chosen, **recipe.options})

    def _make_from_a_clip(self, recipe: Recipe) -> bytes:
        whole = self._folder / f"whole.{recipe.format}"
        whole.write_bytes(self._make(_vary(recipe, options={"g": 25})))
        options = dict(recipe.options)
        return self._run([ffmpeg.input(str(whole), ss=options.pop("ss"))], recipe, options)

    def _run(self, inputs: list[Any], recipe: Recipe, options: dict[str, Any]) -> bytes:
        target = self._folder / "being-made"
        output = ffmpeg.output(*inputs, "pipe:" if recipe.piped else str(target), f=recipe.muxer, **options)
        run = subprocess.run(
            [*output.global_args("-v", "error", "-y", "-nostdin").compile(cmd=str(self.programs.ffmpeg))],
            capture_output=True,
            check=False,
            timeout=_TIMEOUT_SECONDS,
        )
        assert run.returncode == 0, run.stderr.decode()
        return run.stdout if recipe.piped else target.read_bytes()


def open_shelf(folder: Path) -> ClipShelf:
    """Return a shelf in a folder; without ffmpeg it fails, since tests that skip prove nothing."""
    programs = find_ffmpeg()
    assert programs is not None, "no ffmpeg: install what requirements/stack.in names"
    return ClipShelf(programs, folder)

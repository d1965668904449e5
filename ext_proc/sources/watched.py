"""Telling when a file has become another one, without reading it half written."""

from pathlib import Path


class WatchedFile:
    """Asked from time to time. A file counts as changed once it has been left alone between two questions.

    Renamed over, linked anew (Kubernetes), written in place, removed: all show in what the file system says of it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = self._last = _stamp(path)

    def changed(self) -> bool:
        """True once for every new version (or its absence), the first one being the file as it was at the start."""
        now = _stamp(self._path)
        quiet, self._last = now == self._last, now
        if not quiet or now == self._read:
            return False
        self._read = now
        return True


def _stamp(path: Path) -> tuple[int, ...] | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size, stat.st_ino

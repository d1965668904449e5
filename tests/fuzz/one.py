"""`python -m tests.fuzz.one TARGET CORPUS [libFuzzer options]`: one target, until it breaks or the time is over."""

import sys

import atheris  # type: ignore[import-not-found]  # installed by who fuzzes

with atheris.instrument_imports(include=["ext_proc", "policy"]):
    from tests.fuzz.targets import TARGETS


def main() -> None:
    """Never returns; libFuzzer's exit code says how it ended."""
    target = TARGETS[sys.argv.pop(1)]

    def one(data: bytes) -> None:
        try:
            target(data)
        except BaseException:
            print(f"broken by {data.hex()}", flush=True)
            raise

    atheris.Setup(sys.argv, one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()

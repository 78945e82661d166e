"""The command line: the only code that prints or exits.

Nothing heavy is imported until a command needs it, so that help answers at once.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import nullcontext, redirect_stdout

from ropebench.arguments import parsed, parser
from ropebench.cli import comparing, exporting, lens, measuring, reading, reproducing, sharing, verifying
from ropebench.cli.output import Plain, unreadable
from ropebench.errors import UsageError, in_short, plain


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point. Exit codes: 0 all ok, 1 some cells failed, 2 a mistake in what was given, 130 interrupted."""
    words = list(sys.argv[1:] if argv is None else argv)
    top = parser(COMMANDS)
    try:
        options = parsed(top, words)
    except UsageError as error:
        return _refused(error)
    if not options.command:
        top.print_help()
        return 2
    theirs = options.command == "lm-eval"  # lm-eval's own output has colours
    try:
        with nullcontext() if theirs else redirect_stdout(Plain(sys.stdout)):
            return int(options.go(options, words))
    except UsageError as error:
        return _refused(error)
    except KeyboardInterrupt:
        how = "what is measured already counts as before" if "--rerun" in words else "run the same command to go on"
        sys.stderr.write(f"\nropebench: interrupted; what was measured is stored: {how}\n")
        return 130
    except BrokenPipeError:  # the reader of a pipe went away
        sys.stderr.close()
        return 0
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError):
        # A record that is not as it should be is somebody's file; anything else is a defect of ours.
        wrong = unreadable(options.results) if options.command in _READERS else None
        if wrong is None:
            raise
        sys.stderr.write(f"ropebench: error: {plain(wrong)}; see ropebench verify {plain(options.results)}\n")
        return 2


def _refused(error: UsageError) -> int:
    sys.stderr.write(f"ropebench: error: {in_short(str(error))}\n")
    return 2


_READERS = ("report", "leaderboard", "compare", "show")  # of records that anybody may have written
COMMANDS = {
    "run": measuring.run,
    "plan": measuring.plan,
    "inspect": measuring.inspect,
    "reproduce": reproducing.reproduce,
    "list": reading.listing,
    "report": reading.report,
    "leaderboard": reading.leaderboard,
    "export": exporting.export,
    "import": sharing.bring_in,
    "compare": comparing.compare,
    "show": reading.show,
    "verify": verifying.verify,
    "lm-eval": measuring.lm_eval,
    "lens": lens.lens,
    "cache": reading.cache,
}

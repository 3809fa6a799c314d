"""The program lms, as a module of Python's: scripts run with the Python that runs this."""

import os
import sys

from lms import PROGRAM


def main():
    os.environ["LMSSHIM_PYTHON"] = sys.executable
    os.execv(PROGRAM, ["lms", *sys.argv[1:]])


if __name__ == "__main__":
    main()

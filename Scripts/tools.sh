# Sourced by checks. python_with CHECK FOLDER MODULE REQUIREMENT sets `python` to one that has a module of a library that is not ours,
# which is installed into FOLDER if need be, or ends the check, saying why it is skipped.
python_with() {
    python=python3
    if "$python" -c "import $3" 2>/dev/null; then return; fi
    if [ ! -x "$2/bin/python" ] && ! python3 -m venv "$2" 2>/dev/null; then
        echo "$1: skipped, Python makes no environment here (Debian: apt-get install python3-venv)"
        exit 0
    fi
    python=$2/bin/python
    if ! "$python" -c "import $3" 2>/dev/null && ! "$python" -m pip --quiet install "$4" 2>/dev/null; then
        echo "$1: skipped, PyPI's $4 cannot be installed here"
        exit 0
    fi
}

# The program: TILEPROXY, or built, or with NO_BUILD=1 as it is.
find_tileproxy() {
    [ -z "${TILEPROXY:-}" ] || return 0
    local scratch=${SCRATCH:-.build}
    [ -n "${NO_BUILD:-}" ] || swift build -c release --product tileproxy --scratch-path "$scratch" >&2
    TILEPROXY=$(swift build -c release --scratch-path "$scratch" --show-bin-path)/tileproxy
}

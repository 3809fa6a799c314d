#!/bin/sh
# docs/report.png: `lms report --html` of a short run of the demo on the simulated GPU, as Chromium shows it. Expects
# everything built, and Chromium.
set -eu
cd "$(dirname "$0")/../.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
build/lms run --sim --sim-memory 48M --trace "$work/trace" -- build/demo --memory 96M --steps 40 README.md docs/*.md docs/*/*.md
build/lms report "$work/trace" --html "$work/page.html"
chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --window-size=960,1560 \
    --screenshot=docs/report.png "file://$work/page.html"

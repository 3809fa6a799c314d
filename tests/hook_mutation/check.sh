# Every hook is held by a test: held.tsv.
exec python3 -B tests/hook_mutation/held.py check

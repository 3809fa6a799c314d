# Completion of lms for bash: asks the program what there is.
_lms() {
    local word=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[1]} offered= i
    COMPREPLY=()
    if ((COMP_CWORD == 1)); then
        offered=$(lms --help | sed -n '/^Subcommands:/,$s/^  \([a-z-]*\) .*/\1/p')
    fi
    # What is run has a completion of its own.
    if [[ $command == run ]]; then
        for ((i = 2; i < COMP_CWORD; i++)); do
            [[ ${COMP_WORDS[i]} == -- ]] || continue
            if declare -F _command_offset >/dev/null; then
                _command_offset $((i + 1))
            else
                mapfile -t COMPREPLY < <(compgen -c -f -- "$word")
            fi
            return
        done
    fi
    if [[ $word == -* ]]; then
        offered=$(lms $( ((COMP_CWORD == 1)) || echo "$command") --help | sed -n 's/^  \(-[a-z],\)\{0,1\}\(--[a-z-]*\).*/\2/p')
    elif ((COMP_CWORD > 1)); then
        case $command:$COMP_CWORD in
        set:2 | trace:2 | top:2) offered=$(lms top --json | sed -n 's/^    "process": \([0-9]*\),$/\1/p') ;;
        set:*)
            offered="limit= policy= log= pause resume"
            compopt -o nospace 2>/dev/null  # it is told so outside of a completion
            ;;
        trace:3) offered="start stop" ;;
        run:*) mapfile -t COMPREPLY < <(compgen -c -f -- "$word") ;;
        *) mapfile -t COMPREPLY < <(compgen -f -- "$word") ;;
        esac
    fi
    [[ -z $offered ]] || mapfile -t COMPREPLY < <(compgen -W "$offered" -- "$word")
}
complete -o filenames -F _lms lms

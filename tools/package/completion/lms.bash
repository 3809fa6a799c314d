# Completion of lms for bash: asks the program what there is.
_lms() {
    local word=${COMP_WORDS[COMP_CWORD]} i
    COMPREPLY=()
    if ((COMP_CWORD == 1)); then
        mapfile -t COMPREPLY < <(compgen -W "$(lms --help | sed -n '/^Subcommands:/,$s/^  \([a-z-]*\) .*/\1/p')" -- "$word")
        return
    fi
    if [[ $word == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$(lms "${COMP_WORDS[1]}" --help | grep -oE -- '--[a-z-]+' | sort -u)" -- "$word")
        return
    fi
    # What is run has a completion of its own.
    if [[ ${COMP_WORDS[1]} == run ]]; then
        for ((i = 2; i < COMP_CWORD; i++)); do
            [[ ${COMP_WORDS[i]} == -- ]] && declare -F _command_offset >/dev/null && _command_offset $((i + 1)) && return
        done
        mapfile -t COMPREPLY < <(compgen -c -f -- "$word")
    else
        mapfile -t COMPREPLY < <(compgen -f -- "$word")
    fi
}
complete -o filenames -F _lms lms

# Completion of lms for fish: asks the program what there is.
function __lms_commands
    lms --help | sed -n '/^Subcommands:/,$s/^  \([a-z-]*\)  *\(.*\)/\1\t\2/p'
end
function __lms_options
    lms (commandline -opc)[2] --help | string replace -rf -- '^  (?:-[a-z],)?(--[a-z-]+).*' '$1'
end
complete -c lms -n __fish_use_subcommand -f -a '(__lms_commands)'
complete -c lms -n 'not __fish_use_subcommand; and string match -q -- "-*" (commandline -ct)' -a '(__lms_options)'

"""`holdfast completion`, and `holdfast __complete`, which the scripts that it prints call.

`__complete WORD... LAST` prints the values that LAST can be completed to, one per line with a tab and a
description, and a last line `:N`. This is what kubectl expects of a plugin's `kubectl_complete-NAME`: N
is 4 if files must not be completed, 0 if the shell completes files, and 2 is added if no blank follows.
"""

import enum
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr
from io import StringIO
from typing import Annotated, Any, NamedTuple

import typer

from holdfast.cli.options import AllNamespaces, Context, Kubeconfig, Namespace, Snapshot

_NO_SPACE, _NO_FILES = 2, 4


class Shell(enum.StrEnum):
    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"
    POWERSHELL = "powershell"


def completion(
    shell: Annotated[
        Shell,
        typer.Argument(metavar="SHELL", help="bash, zsh, fish or powershell.", show_default=False),
    ],
) -> None:
    """Print a script for completion in a shell.

    The script completes commands, options, types, and the names of objects, namespaces and contexts,
    for which it asks the cluster. For `kubectl holdfast`, kubectl's own completion is enough: it calls
    kubectl_complete-holdfast, which is installed with holdfast.

    Examples:
      # bash: now, and in every new shell
      source <(holdfast completion bash)
      echo 'source <(holdfast completion bash)' >> ~/.bashrc

      # zsh, where compinit is loaded
      source <(holdfast completion zsh)
      echo 'source <(holdfast completion zsh)' >> ~/.zshrc

      # fish
      holdfast completion fish > ~/.config/fish/completions/holdfast.fish

      # PowerShell
      holdfast completion powershell | Out-String | Invoke-Expression
    """
    typer.echo(_SCRIPTS[shell], nl=False)


# Completing a command line


class CompletionAnswer(NamedTuple):
    values: list[tuple[str, str]]
    """Values and descriptions."""
    directive: int = _NO_FILES


def complete(words: Sequence[str]) -> None:
    """Prints the answer for the words after the program's name, of which the last is completed."""
    from holdfast.cli.completers import FILES

    # What is wrong with the line so far is not reported while it is being typed.
    with redirect_stderr(StringIO()):
        try:
            found = answer(list(words) or [""])
        except Exception:
            found = CompletionAnswer([])
    directive = found.directive
    if any(value.endswith(FILES) for value, _ in found.values):
        directive &= ~_NO_FILES
    for value, described in found.values:
        if not value.endswith(FILES):
            sys.stdout.write(f"{value}\t{described}\n" if described else f"{value}\n")
    sys.stdout.write(f":{directive}\n")


def answer(words: list[str]) -> CompletionAnswer:
    from holdfast.cli.app import COMMANDS, app, cluster_flags, load_command, single_command

    *before, last = words
    flags, before = cluster_flags(before)
    group: Any = typer.main.get_command(app)
    context = group.make_context("holdfast", [], resilient_parsing=True)
    if not before:
        start = single_command("holdfast", _start_of_line)
        start.params += group.params
        return _parameter(start, "holdfast", context, flags, last)
    name, *before = before
    if name not in COMMANDS:
        return CompletionAnswer([])
    command = load_command(name)
    if hasattr(command, "list_commands"):
        inner = command.make_context(name, [], parent=context, resilient_parsing=True)
        if not before:
            subcommands = [
                (each, (command.get_command(inner, each).help or "").partition("\n")[0])
                for each in command.list_commands(inner)
            ]
            return _starting(subcommands, last)
        name, *before = before
        command, context = command.get_command(inner, name), inner
        if command is None:
            return CompletionAnswer([])
    return _parameter(command, name, context, [*flags, *before], last)


def _commands(incomplete: str) -> list[tuple[str, str]]:
    from holdfast.cli.app import COMMANDS

    return [(name, summary) for name, (_, summary) in COMMANDS.items()]


def _start_of_line(
    command: Annotated[str | None, typer.Argument(autocompletion=_commands)] = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    namespace: Namespace = None,
    all_namespaces: AllNamespaces = False,
    snapshot: Snapshot = None,
) -> None:
    """What a line begins with: options of the cluster, and the command."""


def _parameter(command: Any, name: str, parent: Any, before: list[str], last: str) -> CompletionAnswer:
    """The value of an option, the name of an option, or an argument."""
    parameters = command.get_params(parent)
    valued = {
        flag: each
        for each in parameters
        for flag in each.opts
        if each.param_type_name == "option" and not each.is_flag
    }
    if before and before[-1] in valued and not _has_optional_value(valued[before[-1]]):
        context = command.make_context(name, before[:-1], parent=parent, resilient_parsing=True)
        return _values(valued[before[-1]], context, last)
    context = command.make_context(name, before, parent=parent, resilient_parsing=True)
    flag, equals, value = last.partition("=")
    if equals and flag in valued:
        found = _values(valued[flag], context, value)
        return found._replace(values=[(f"{flag}={each}", text) for each, text in found.values])
    if last.startswith("-"):
        return _options(command, context, last)
    for each in parameters:
        is_open = each.nargs == -1 or context.params.get(each.name) is None
        if each.param_type_name == "argument" and is_open:
            return _values(each, context, last)
    return CompletionAnswer([])


def _has_optional_value(option: Any) -> bool:
    return str(option.metavar or "").startswith("[")


def _options(command: Any, context: Any, last: str) -> CompletionAnswer:
    found = [
        (flag, _first_sentence(each.help))
        for each in command.get_params(context)
        if each.param_type_name == "option" and not each.hidden
        for flag in (*each.opts, *each.secondary_opts)
        if flag.startswith("--")
    ]
    return _starting(found, last)


def _first_sentence(text: str | None) -> str:
    return " ".join((text or "").split()).partition(". ")[0].rstrip(".")


def _values(parameter: Any, context: Any, last: str) -> CompletionAnswer:
    found = [(item.value, item.help or "") for item in parameter.shell_complete(context, last)]
    directive = _NO_FILES
    if found and all(value.endswith(("=", "/", ",")) for value, _ in found):
        directive |= _NO_SPACE
    return CompletionAnswer(found, directive)


def _starting(values: Sequence[tuple[str, str]], last: str) -> CompletionAnswer:
    return CompletionAnswer([(value, text) for value, text in values if value.startswith(last)])


# The scripts


_BASH = r"""# bash completion for holdfast

_holdfast_complete() {
    local words=() i word last out directive line before
    # bash splits words at '=' and ':'; join them again.
    for ((i = 1; i <= COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        if ((i > 1)) && [[ $word == [=:]* || ${COMP_WORDS[i - 1]} == [=:] ]] \
            && [[ ${#words[@]} -gt 0 ]]; then
            words[${#words[@]} - 1]+=$word
        else
            words+=("$word")
        fi
    done
    COMPREPLY=()
    last=${words[${#words[@]} - 1]}
    out=$("${COMP_WORDS[0]}" __complete "${words[@]}" 2>/dev/null) || return
    directive=${out##*:}
    before=${last%"${COMP_WORDS[COMP_CWORD]}"}
    [[ ${COMP_WORDS[COMP_CWORD]} == [=:] ]] && before=$last
    while IFS= read -r line; do
        [[ $line == :* || -z $line ]] && continue
        line=${line%%$'\t'*}
        [[ $line == "$last"* ]] && COMPREPLY+=("${line#"$before"}")
    done <<<"$out"
    if ((directive & 2)) && type compopt &>/dev/null; then
        compopt -o nospace
    fi
    if ! ((directive & 4)); then
        while IFS= read -r line; do
            COMPREPLY+=("$line")
        done < <(compgen -f -- "${last#"$before"}")
        type compopt &>/dev/null && compopt -o filenames
    fi
}

complete -F _holdfast_complete holdfast
"""
_ZSH = r"""#compdef holdfast
# zsh completion for holdfast

_holdfast() {
    local -a lines values
    local line directive
    lines=("${(@f)$("${words[1]}" __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    directive=${${lines[-1]}#:}
    for line in "${(@)lines[1,-2]}"; do
        [[ -z $line ]] && continue
        local value=${line%%$'\t'*} described=${line#*$'\t'}
        value=${value//:/\\:}
        [[ $line == *$'\t'* ]] && values+=("$value:$described") || values+=("$value")
    done
    if ((${#values})); then
        if ((directive & 2)); then
            _describe -V holdfast values -S ''
        else
            _describe -V holdfast values
        fi
    fi
    ((directive & 4)) || _files
}

if [[ ${funcstack[1]} == _holdfast ]]; then
    _holdfast "$@"
else
    compdef _holdfast holdfast
fi
"""
_FISH = r"""# fish completion for holdfast

function __holdfast_complete
    set -l words (commandline -opc) (commandline -ct)
    set -l lines (holdfast __complete $words[2..-1] 2>/dev/null)
    set -l directive (string replace -r '^:' '' -- $lines[-1])
    for line in $lines[1..-2]
        echo $line
    end
    if test (math "bitand($directive, 4)") -eq 0
        __fish_complete_path (commandline -ct)
    end
end

complete -c holdfast -e
complete -c holdfast -f -a '(__holdfast_complete)'
"""
_POWERSHELL = r"""# PowerShell completion for holdfast

Register-ArgumentCompleter -Native -CommandName holdfast -ScriptBlock {
    param($wordToComplete, $commandAst, $cursorPosition)
    $words = @($commandAst.CommandElements | Select-Object -Skip 1 |
        Where-Object { $_.Extent.StartOffset -lt $cursorPosition } | ForEach-Object { $_.ToString() })
    if ($wordToComplete -eq '') { $words += '' }
    $lines = @(& holdfast __complete @words 2>$null)
    $directive = [int]($lines[-1] -replace '^:', '')
    foreach ($line in $lines[0..($lines.Count - 2)]) {
        if ($lines.Count -lt 2 -or -not $line) { continue }
        $value, $described = $line -split "`t", 2
        if (-not $described) { $described = $value }
        [System.Management.Automation.CompletionResult]::new(
            $value, $value, 'ParameterValue', $described)
    }
    if (-not ($directive -band 4)) {
        Get-ChildItem -Path "$wordToComplete*" -Name -ErrorAction SilentlyContinue
    }
}
"""
_SCRIPTS = {Shell.BASH: _BASH, Shell.ZSH: _ZSH, Shell.FISH: _FISH, Shell.POWERSHELL: _POWERSHELL}

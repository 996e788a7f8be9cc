"The notebooks as pages: labels that references can point at, titles, and outputs that name no machine."
import json, re
from pathlib import Path
import pytest

NOTEBOOKS = sorted((Path(__file__).parents[1]/'nbs').glob('*.ipynb'))

def cells(p): return json.loads(p.read_text(encoding='utf-8'))['cells']

def test_there_are_notebooks(): assert len(NOTEBOOKS) > 15

def test_every_label_stands_once():
    seen = {}
    for p in NOTEBOOKS:
        for c in cells(p):
            for label in re.findall(r'^#\|\s*label:\s*(\S+)', ''.join(c['source']), re.M): seen.setdefault(label, []).append(p.name)
    assert len(seen) > 30 and {k: v for k, v in seen.items() if len(v) > 1} == {}

@pytest.mark.parametrize('path', NOTEBOOKS, ids=lambda p: p.stem)
def test_title_and_summary(path):
    assert re.match(r'# .+\n+> .+', ''.join(cells(path)[0]['source']))

@pytest.mark.parametrize('path', NOTEBOOKS, ids=lambda p: p.stem)
def test_labelled_cells_have_captions_and_outputs(path):
    for c in cells(path):
        s = ''.join(c['source'])
        if m := re.search(r'^#\|\s*label:\s*((?:tbl|fig)-\S+)', s, re.M):
            assert re.search(rf'^#\|\s*{m[1][:3]}-cap:', s, re.M), m[1]
            assert c['outputs'] and not any(o['output_type'] == 'error' for o in c['outputs']), m[1]

@pytest.mark.parametrize('path', NOTEBOOKS, ids=lambda p: p.stem)
def test_outputs_name_no_machine(path):
    for c in cells(path):
        for o in c.get('outputs', []):
            text = json.dumps({k: v for k, v in o.get('data', {}).items() if not k.startswith('image/')}) + json.dumps(o.get('text', ''))
            assert not re.search(r'(?<![\w.])/(tmp|root|home|Users|work)/|C:\\\\', text), (path.name, text[:200])

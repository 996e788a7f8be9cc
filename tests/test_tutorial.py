"The newcomer's path, as the pages print it: own model as a function, to a scored submission, in under 20 lines."
import json, os, re, shlex, subprocess, sys
from pathlib import Path
import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT/'README.md', ROOT/'nbs'/'index.ipynb', ROOT/'nbs'/'54_submit.ipynb']
HEADING = '## From a function to a submission'
pytestmark = pytest.mark.skipif(not PAGES[1].is_file(), reason='the pages of a checkout are needed')

def markdown(page):
    "A page as Markdown, code cells as fenced blocks."
    if page.suffix == '.md': return page.read_text(encoding='utf-8')
    cells = json.loads(page.read_text(encoding='utf-8'))['cells']
    return '\n\n'.join(f"```python\n{''.join(c['source'])}\n```" if c['cell_type'] == 'code' else ''.join(c['source']) for c in cells)

def tutorial(page):
    "The Python code and the commands of the section."
    text = markdown(page)
    assert text.count(HEADING + '\n') == 1, f'{page.name} has the section once'
    section = re.split(r'\n## ', text.split(HEADING + '\n')[1])[0]
    python, shell = ('\n'.join(re.findall(rf'```{kind}\n(.*?)\n```', section, re.S)) for kind in ('python', 'sh'))
    return python, [l.split('#')[0].strip() for l in shell.split('\n') if l.split('#')[0].strip()]

@pytest.mark.parametrize('page', PAGES, ids=lambda p: p.name)
def test_the_pages_print_the_same_short_path(page):
    python, commands = tutorial(page)
    assert (python, commands) == tutorial(PAGES[-1])
    lines = [l for l in python.split('\n') if l.strip()] + commands
    assert 5 < len(lines) < 20 and 'from_function' in python

def test_the_path_leads_to_a_scored_submission(tmp_path):
    python, commands = tutorial(PAGES[-1])
    assert [shlex.split(c)[:2] for c in commands] == [['polyroute', 'evaluate'], ['polyroute', 'score'], ['polyroute', 'compare'], ['polyroute', 'submit']]
    (tmp_path/'my_module.py').write_text(python, encoding='utf-8')
    env = {k: v for k, v in os.environ.items() if not k.startswith('POLYROUTE')} | {'OMP_NUM_THREADS': '1'}
    printed = []
    for c in commands:
        r = subprocess.run([str(Path(sys.executable).parent/'polyroute'), *shlex.split(c)[1:]], cwd=tmp_path, env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        assert r.returncode == 0, r.stderr + r.stdout
        assert r.stderr == '', 'quiet when piped'
        printed.append(r.stdout)
    assert printed[0].count('computed') == 5 and 'accuracy' in printed[1] and 'my-system' in printed[2]
    assert 'would stand at place' in printed[3] and 'not separated from' in printed[3]
    ready = tmp_path/'submission'/'outputs'/'systems'/'my-system'
    said = json.loads((ready/'submission.json').read_text(encoding='utf-8'))
    shown = dict(l.split()[:2] for l in printed[1].split('\n') if len(l.split()) == 2)
    assert f"{said['scores']['ml_test']['accuracy']:.4f}" == shown['accuracy'], 'the submission holds the score that was shown'
    assert 'My system' in (tmp_path/'submission'/'PULL_REQUEST.md').read_text(encoding='utf-8')

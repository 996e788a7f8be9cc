"The command line: every answer is also data, every fault an exit code and a message."
from pathlib import Path
import json
import os
import subprocess
import sys
import click
import pytest
from click.testing import CliRunner
from conftest import SYSTEMS, even, lines_of, run_command as run, toy_data, tree
from polyroute.cli import main
from polyroute.items import DEPARTMENT, Question, load, sha256, write_jsonl
from polyroute.leaderboard import read_board
from polyroute.predictions import frozen
from polyroute.systems import cards


def as_json(*args, **kw): return json.loads(run(*args, **kw), parse_constant=lambda c: pytest.fail(f'{c} is not JSON'))

def commands(group, path=()):
    for name, c in group.commands.items():
        yield (*path, name), c
        if isinstance(c, click.Group): yield from commands(c, (*path, name))

ALL = dict(commands(main))

@pytest.mark.parametrize('path', ALL, ids=' '.join)
def test_every_command_explains_itself(path):
    out = run(*path, '--help')
    assert 'Usage:' in out and len(ALL[path].help or '') > 30 and out == run(*path, '-h')
    if not isinstance(ALL[path], click.Group) and ALL[path].params[:1] and isinstance(ALL[path].params[0], click.Argument):
        assert f'polyroute {" ".join(path)}' in out, 'a command with arguments shows an example'

def test_the_first_page_names_the_jobs():
    out = run('--help')
    for path in ALL: assert path[0] in out
    assert 'polyroute leaderboard' in out and 'polyroute evaluate' in out
    assert run('--version').strip().split()[-1][0].isdigit()

@pytest.mark.parametrize('args', [['no-such-command'], ['evaluate'], ['compare', 'a'], ['leaderboard', '--track', 'D'], ['leaderboard', '--alpha', '0'], ['leaderboard', '--alpha', '1'], ['leaderboard', '--alpha', 'x'], ['tiers'], ['tiers', 'no-such.csv'], ['score', 'no-such.jsonl'], ['leaderboard', '--root', 'no-such-folder']])
def test_wrong_usage_is_exit_code_2(home, args):
    assert 'Error' in run(*args, code=2)

@pytest.mark.parametrize('args, words', [(['leaderboard', '--split', 'x'], ["no data set 'x'", 'ml_test']), (['compare', 'best', 'nobody'], ['nobody', 'no file']), (['evaluate', 'nobody'], ["'nobody'", 'majority']),
                                         (['evaluate', 'no_such_module_y:z'], ['no_such_module_y']), (['evaluate', 'json:zzz'], ['zzz']), (['data', 'verify', 'no-such-folder'], ['no-such-folder']), (['compare', 'best', 'second', '--split', 'x'], ['x'])])
def test_faults_are_messages_and_exit_code_1(board_home, args, words):
    out = run(*args, code=1)
    assert out.startswith('Error: ') and all(w in out for w in words), out


# evaluate

QUESTION = Question('urgent', 'noul', 'Is it urgent?', (('false', ''), ('true', '')))

MODULE = 'import sys\nsys.path.insert(0, {tests!r})\nfrom conftest import Toy, right_on\nsystem = Toy("mine", "A", right_on(.8, "mine"))\ndef broken(): return Toy("broken", predict=lambda s, q: [[.5, .5, .5]]*len(s))\ndef slow(): raise RuntimeError("no weights")\n'

@pytest.fixture
def mine(home, monkeypatch):
    (home/'toy_module_2.py').write_text(MODULE.format(tests=os.path.dirname(__file__)))
    monkeypatch.chdir(home)
    monkeypatch.delitem(sys.modules, 'toy_module_2', raising=False)
    monkeypatch.setattr(sys, 'path', list(sys.path))
    return home

def test_evaluate_a_module_object(mine):
    assert run('evaluate', 'toy_module_2:system').split('\n')[:2] == ['toy_module_2:system ml_test: computed', 'toy_module_2:system mix_test: computed']
    assert run('evaluate', 'toy_module_2:system', '--split', 'ml_test') == 'toy_module_2:system ml_test: kept (the version follows toy_module_2 alone, not what it imports or loads; --fresh recomputes)\n'
    assert run('evaluate', 'toy_module_2:system', '--split', 'ml_test', '--fresh') == 'toy_module_2:system ml_test: computed\n'
    assert sorted(tree(mine/'out')) == [f'systems/mine/{f}' for f in ('mix_test.jsonl', 'ml_test.jsonl', 'runs.json', 'system.json')]
    run('evaluate', 'toy_module_2:system', '--out', mine/'elsewhere', '--latency')
    assert json.loads((mine/'elsewhere/systems/mine/latency.json').read_text())['ms_per_item'] >= 0
    assert 'MINE' in run('leaderboard')

def test_what_is_kept_says_what_it_does_not_follow(mine):
    "A module that the named one imports changes nothing in the version."
    (mine/'part_of_it.py').write_text('share = .8\n')
    (mine/'toy_module_3.py').write_text(MODULE.format(tests=os.path.dirname(__file__)).replace('right_on(.8', 'right_on(part_of_it.share').replace('import sys', 'import sys, part_of_it'))
    one = lambda *more: [run('evaluate', 'toy_module_3:system', '--split', 'ml_test', *more), sys.modules.pop('toy_module_3'), sys.modules.pop('part_of_it')][0]
    assert 'computed' in one()
    before = (mine/'out/systems/mine/ml_test.jsonl').read_bytes()
    (mine/'part_of_it.py').write_text('share = .25\n')
    assert '--fresh recomputes' in one() and (mine/'out/systems/mine/ml_test.jsonl').read_bytes() == before
    assert 'computed' in one('--fresh') and (mine/'out/systems/mine/ml_test.jsonl').read_bytes() != before
    assert '--fresh' in run('evaluate', '--help').split('SYSTEM is')[0]

def test_evaluate_any_file_of_the_data_folder(mine):
    toy_data(mine/'data'/'own.jsonl', 5)
    assert 'own: computed' in run('evaluate', 'toy_module_2:system', '--split', 'own') and len(frozen('mine', 'own')) == 5

def test_evaluate_says_what_a_system_returned(mine):
    out = run('evaluate', 'toy_module_2:broken', code=1)
    assert "id 'i000'" in out and 'broken' in out and '[0.5, 0.5, 0.5]' in out

def test_evaluate_says_what_is_wrong_with_a_module(mine):
    (mine/'own_module_s.py').write_text('def f(:\n')
    out = run('evaluate', 'own_module_s:system', code=1)
    assert 'own_module_s.py, line 1: own_module_s cannot be imported (SyntaxError' in out
    (mine/'own_module_n.py').write_text('from polyroute.adapters import from_function\nsystem = from_function(lambda texts, question: None, "nothing")\n')
    assert 'the model returned None; a list or an array' in run('evaluate', 'own_module_n:system', code=1)

def test_latency_is_measured_where_a_system_answers(mine):
    (mine/'own_module_l.py').write_text('from conftest import even\nfrom polyroute.adapters import from_function\nfrom polyroute.items import DEPARTMENT, Question\nhere = from_function(even, "here", DEPARTMENT)\nelsewhere = from_function(even, "elsewhere", Question("q", "noul", "?", (("false", ""), ("true", ""))))\n')
    toy_data(mine/'data'/'typed.jsonl', 5, QUESTION)
    assert 'typed: n/a' in run('evaluate', 'own_module_l:here', '--split', 'ml_test', '--split', 'typed', '--latency') and (mine/'out/systems/here/latency.json').is_file()
    assert 'no latency' in run('evaluate', 'own_module_l:elsewhere', '--latency') and not (mine/'out/systems/elsewhere/latency.json').exists()

def test_damaged_files_are_messages(board_home):
    path = board_home/'out'/'systems'/'best'/'system.json'
    for text in ('', '[]', '{"slug"'):
        path.write_text(text)
        for args in (['leaderboard'], ['systems']): assert 'best/system.json: the file is damaged' in run(*args, code=1)

def test_evaluate_in_a_real_process_with_its_own_environment(mine):
    env = {**os.environ, 'POLYROUTE_DATA': str(mine/'data'), 'POLYROUTE_OUTPUTS': str(mine/'by-env')}
    r = subprocess.run([sys.executable, '-c', 'from polyroute.cli import main; main()', 'evaluate', 'toy_module_2:system', '--split', 'ml_test'], cwd=mine, env=env, capture_output=True, text=True)
    assert (r.returncode, r.stdout) == (0, 'toy_module_2:system ml_test: computed\n'), r.stderr
    assert lines_of(mine/'by-env/systems/mine/ml_test.jsonl')[0]['data_sha256'] == sha256(mine/'data/ml_test.jsonl')
    assert not (mine/'outputs').exists() and tree(mine/'out') == {}

def test_systems(board_home):
    found = as_json('systems', '--json')
    assert [c['slug'] for c in found['systems']] == [c.slug for c in cards()] and 'majority' in found['not_run']
    assert all(s.upper() in run('systems') for s, _, _ in SYSTEMS) and 'majority' in run('systems')


# reproduce

@pytest.fixture
def majority(home):
    toy_data(home/'data'/'train.jsonl', 10)
    run('evaluate', 'majority')
    return home

def test_reproduce(majority):
    out = run('reproduce', 'majority', '--out', majority/'fresh')
    assert out == 'majority: 2 splits recomputed, identical to the frozen predictions\n'
    path = majority/'out/systems/majority/ml_test.jsonl'
    path.write_text(path.read_text().replace('"billing": 0.4, "technical": 0.3', '"billing": 0.3, "technical": 0.4', 1))
    assert '1 decisions differ' in run('reproduce', 'majority', '--out', majority/'fresh', code=1)
    path.write_text(path.read_text().replace('"billing": 0.3, "technical": 0.4', '"billing": 0.4001, "technical": 0.2999', 1))
    assert '0 decisions differ' in run('reproduce', 'majority', '--out', majority/'fresh')

def test_reproduce_nothing_is_not_identical(home):
    toy_data(home/'data'/'train.jsonl', 10)
    assert 'identical' not in run('reproduce', 'majority', '--out', home/'fresh', code=1)

def test_reproduce_a_name_that_is_none(home):
    assert 'nobody' in run('reproduce', 'nobody', '--out', home/'fresh', code=1)


# leaderboard

def test_leaderboard_forms(board_home):
    text, md, page = run('leaderboard'), run('leaderboard', '--markdown'), run('leaderboard', '--html')
    assert all(s.upper() in t for s, _, _ in SYSTEMS for t in (text, md, page)) and md.startswith('# ') and page.startswith('<!doctype html>')
    found = as_json('leaderboard', '--json', '--split', 'mix_test')
    assert list(found) == ['mix_test', 'ml_test'] and [s['slug'] for s in found['mix_test']['systems']] == read_board('mix_test').slugs

def test_a_track_filter_keeps_tiers_and_places(board_home):
    whole = as_json('leaderboard', '--json')
    for tracks in (['C'], ['A', 'ref']):
        part = as_json('leaderboard', '--json', *(x for t in tracks for x in ('--track', t)))
        for split in whole: assert part[split]['systems'] == [s for s in whole[split]['systems'] if s['track'] in tracks]
    shown = run('leaderboard', '--track', 'A')
    assert 'BEST' not in shown and 'MIDDLE' in shown

def test_alpha_moves_the_tiers(board_home):
    tiers = lambda *a: [s['tier'] for s in as_json('leaderboard', '--json', *a)['ml_test']['systems']]
    assert tiers() == [1, 1, 2, 2, 3] and tiers('--alpha', '1e-12') == [1, 1, 1, 2, 2]

def test_any_alpha_that_is_allowed_works(board_home):
    assert 'BEST' in run('leaderboard', '--alpha', '1e-20')
    for alpha in ('1e-20', '1e-300', '0.999999'): assert 'best' in run('compare', 'best', 'low', '--split', 'ml_test', '--alpha', alpha)

def test_leaderboard_of_another_folder_and_of_an_empty_one(board_home):
    (board_home/'empty').mkdir()
    assert run('leaderboard', '--root', board_home/'out') == run('leaderboard')
    out = run('leaderboard', '--root', board_home/'empty')
    assert 'ml_test' in out and 'BEST' not in out


# compare

def test_compare(board_home):
    found = as_json('compare', 'best', 'low', '--json')
    assert [f['split'] for f in found] == ['ml_test', 'mix_test'] and found[0]['verdict'] == 'best is better' and found[0]['p'] < .01
    assert 'best is better' in run('compare', 'best', 'low') and 'corrected for their number' in run('compare', 'best', 'low') and 'corrected for' not in run('compare', 'best', 'low', '--split', 'mix_test')
    assert as_json('compare', 'near-middle', 'middle', '--split', 'mix_test', '--json')[0]['verdict'] == 'not separated'

@pytest.mark.parametrize('split', ['ml_test', 'mix_test'])
def test_compare_a_file_with_a_system(board_home, split):
    file = board_home/'out'/'systems'/'best'/f'{split}.jsonl'
    found = as_json('compare', file, 'low', '--json')               # the file says which split it is about
    assert [f['split'] for f in found] == [split] and found[0] == as_json('compare', 'best', 'low', '--split', split, '--json')[0]
    assert as_json('compare', file, board_home/'out'/'systems'/'low'/f'{split}.jsonl', '--json') == found

def test_compare_needs_only_the_split_that_is_compared(board_home):
    (board_home/'out'/'systems'/'low'/'mix_test.jsonl').unlink()
    assert as_json('compare', 'best', 'low', '--split', 'ml_test', '--json')[0]['items'] == 240
    assert as_json('compare', board_home/'out'/'systems'/'best'/'ml_test.jsonl', 'low', '--json')[0]['items'] == 240
    assert 'polyroute evaluate low --split mix_test' in run('compare', 'best', 'low', code=1)

def test_compare_files_on_different_splits(board_home):
    a, b = (board_home/'out'/'systems'/'best'/f'{s}.jsonl' for s in ('ml_test', 'mix_test'))
    assert 'same items' in run('compare', a, b, code=1)
    for args in ((a, 'low', '--split', 'ml_test', '--split', 'mix_test'), ('low', a, '--split', 'mix_test', '--split', 'ml_test')):
        out = run('compare', *args, code=1)
        assert 'ml_test.jsonl: these predictions are on ml_test, not on mix_test' in out and '--split ml_test' in out


# tiers

def test_tiers_of_any_board(board_home):
    b = read_board()
    wide = board_home/'wide.csv'
    wide.write_text('\n'.join([','.join(['item', *b.slugs]), *(','.join([i, *map(str, h.astype(int))]) for i, h in zip(b.data.ids, b.hit))]) + '\n')
    long = board_home/'long.csv'
    long.write_text('\n'.join(['item,system,correct', *(f'{i},{s},{int(h)}' for i, row in zip(b.data.ids, b.hit) for s, h in zip(b.slugs, row))]) + '\n')
    rows = as_json('tiers', wide, '--json')
    assert [(r['system'], r['tier'], r['rank_lo'], r['rank_hi']) for r in rows] == list(zip(b.slugs, b.tiers, b.ranks.lo, b.ranks.hi))
    assert sorted(as_json('tiers', long, '--json'), key=lambda r: r['system']) == sorted(rows, key=lambda r: r['system'])
    assert '240 items' in run('tiers', wide) and {r['tier'] for r in as_json('tiers', wide, '--json', '--alpha', '1e-12')} == {1, 2}

def test_tiers_of_a_bad_file(home):
    (home/'r.csv').write_text('item,x,y\na,1,0\nb,1,7\n')
    out = run('tiers', home/'r.csv', code=1)
    assert 'r.csv, line 3' in out and "id 'b'" in out and "'7'" in out


# score

def own(home, header=True, name='mine.jsonl', drop=0, **kw):
    data = load('ml_test')
    head = [dict(schema=1, system='mine', split='ml_test', data_sha256=data.sha256, options={'department': list(DEPARTMENT.options)}, **kw)]*header
    return write_jsonl(home/name, [*head, *(dict(id=i, probabilities=dict(zip(DEPARTMENT.options[::-1], p[::-1]))) for i, p in list(zip(data.ids, even(data.states, DEPARTMENT).round(6).tolist()))[drop:])])

def test_score_a_file_with_and_without_header(home):
    a = as_json('score', own(home), '--json')
    b = as_json('score', own(home, False, 'bare.jsonl'), '--split', 'ml_test', '--json')
    assert a == b and a['items'] == 240 and 0 < a['accuracy'] < 1
    assert f"{a['nll']:.4f}" in run('score', own(home))
    assert '--split ml_test' in run('score', own(home, False, 'bare.jsonl'), code=1)

def test_score_labels_only_shows_dashes(home):
    path = own(home, labels_only=True)
    assert as_json('score', path, '--json')['nll'] is None
    shown = dict(l.split()[:2] for l in run('score', path).split('\n')[2:] if l.strip())
    assert shown['nll'] == shown['ece'] == shown['aurc'] == '–' and shown['accuracy'] != '–'

def test_score_names_what_is_wrong(home):
    out = run('score', own(home, drop=1), code=1)
    assert "id 'i000'" in out and '1 of 240 items are missing' in out
    assert 'empty' in run('score', write_jsonl(home/'empty.jsonl', []), '--split', 'ml_test', code=1)
    toy_data(home/'data'/'ml_test.jsonl', 5)
    assert 'other data' in run('score', home/'mine.jsonl', code=1)
    assert "there is no data set 'x'" in run('score', home/'mine.jsonl', '--split', 'x', code=1)


# data

def test_build_and_verify(tmp_path, monkeypatch):
    counts = as_json('data', 'build', '--out', tmp_path/'d', '--json')
    assert {c['file']: c['kept'] for c in counts}['ml_test'] == 360
    found = as_json('data', 'verify', tmp_path/'d', '--json')
    assert {f['status'] for f in found['files']} == {'ok'} and 'Claude' in found['release']
    monkeypatch.setenv('POLYROUTE_DATA', str(tmp_path/'d'))
    assert run('data', 'verify').count('ok ') == len(found['files'])
    with open(tmp_path/'d'/'ml_test.jsonl', 'a') as f: f.write('\n')
    out = run('data', 'verify', code=1)
    assert 'changed   ml_test.jsonl' in out and 'not as released' in out
    assert as_json('data', 'verify', '--json', code=1)['files']


# systems of several seeds

def test_compare_a_system_with_seeds(board_home):
    out = board_home/'out'/'systems'
    card = json.loads((out/'best'/'system.json').read_text())
    (out/'best'/'system.json').write_text(json.dumps(card | dict(seeds=[7])))
    (out/'best'/'seed-7').mkdir()
    for s in ('ml_test', 'mix_test'): (out/'best'/f'{s}.jsonl').rename(out/'best'/'seed-7'/f'{s}.jsonl')
    assert 'BEST' in run('leaderboard')                                  # the board shows the first seed
    assert as_json('compare', 'best', 'low', '--split', 'ml_test', '--json')[0]['verdict'] == 'best is better'

def test_a_headerless_file_of_ones_own(tmp_path, monkeypatch):
    "The shortest way with one's own model: one line per item, scored and compared. The way from a function is in test_tutorial."
    from polyroute.items import load
    monkeypatch.chdir(tmp_path)
    ids = load('ml_test').ids
    (tmp_path/'mine.jsonl').write_text(''.join(json.dumps({'id': i, 'probabilities': {'billing': 0.9, 'technical': 0.06, 'other': 0.04}}) + '\n' for i in ids))
    assert '0.3333' in run('score', 'mine.jsonl', '--split', 'ml_test')
    assert 'e5-logreg-all is better' in run('compare', 'mine.jsonl', 'e5-logreg-all', '--split', 'ml_test')

def test_arrays_need_a_header(home):
    f = home/'bare.jsonl'
    f.write_text(''.join(json.dumps({'id': i, 'probabilities': [.2, .3, .5]}) + '\n' for i in json_ids(home)))
    assert 'needs a header line that names its order' in run('score', f, '--split', 'ml_test', code=1)

def json_ids(home): return [json.loads(l)['id'] for l in (home/'data'/'ml_test.jsonl').read_text().splitlines()]

def test_changed_source_is_another_version(home, monkeypatch):
    import importlib, sys
    monkeypatch.chdir(home)
    code = "import numpy as np\nfrom polyroute.systems import Card\nclass S:\n    card = Card('mine', 'Mine', 'ref', 'x', 'none')\n    def predict(self, states, question): return np.tile(np.eye(3)[{}], (len(states), 1))\n"
    for option, outcome in ((0, 'computed'), (0, 'kept'), (1, 'computed')):
        (home/'changing.py').write_text(code.format(option))
        sys.modules.pop('changing', None); importlib.invalidate_caches()
        import shutil; shutil.rmtree(home/'__pycache__', ignore_errors=True)
        assert run('evaluate', 'changing:S', '--split', 'ml_test').split(' (')[0].strip() == f'changing:S ml_test: {outcome}'

def test_a_users_system_cannot_take_a_registered_name(home, monkeypatch):
    monkeypatch.chdir(home)
    (home/'clash.py').write_text("from polyroute.systems import Card\nclass S:\n    card = Card('majority', 'Fake', 'ref', 'x', 'none')\n    def predict(self, states, question): ...\n")
    assert 'belongs to a registered system' in run('evaluate', 'clash:S', '--split', 'ml_test', code=1)

@pytest.mark.parametrize('args', [['languages'], ['languages', '--json'], ['confidence', 'languages', 'best'], ['confidence', 'languages', 'best', '--json'], ['check', 'best', '--against', 'best']])
def test_grouping_by_a_key_that_no_item_has_is_a_fault(board_home, args):
    assert 'the items of ml_test name no nonsense; there are: language, script' in run(*args, '--by', 'nonsense', code=1)

def test_a_temperature_for_a_key_that_no_row_has_is_a_fault():
    assert 'name no nonsense; there are: language' in run('confidence', 'temperature', 'tfidf-all', '--by', 'nonsense', code=1)

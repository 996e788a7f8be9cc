"Submissions: what is turned back, what is scored, and what a hostile folder can do (nothing)."
import gzip, json, os, pickle, shutil
from pathlib import Path
import numpy as np
import pytest
from hypothesis import given, strategies as st
from conftest import SYSTEMS, Toy, fast, right_on, run_command as run, toy_data, toy_items, tree
from polyroute import submissions as s
from polyroute.items import DataError, load, outputs_dir, write_jsonl
from polyroute.leaderboard import read_board, report, scores
from polyroute.predictions import frozen
from polyroute.systems import EXPOSURE, Card, cards, evaluate


@pytest.fixture
def mine(board_home):
    "A sound submission on both splits, made as its owner makes it."
    system = Toy('mine', 'A', right_on(.85, 'mine'), name='My model')
    system.card.exposure = 'none'
    for name in ('train', 'train_ml'): toy_data(board_home/'data'/f'{name}.jsonl', 12, id=lambda i: f't{i}')
    for split in ('ml_test', 'mix_test'): evaluate(system, split, board_home/'mine_out')
    return board_home/'mine_out'/'systems'/'mine'

def edit(path, f):
    "Change a JSON file."
    row = json.loads(path.read_text(encoding='utf-8'))
    path.write_text(json.dumps(f(row) or row, ensure_ascii=False), encoding='utf-8')

def fault(folder):
    with pytest.raises(DataError) as e: s.read_submission(folder)
    return str(e.value)


# a sound one

def test_a_sound_submission_is_read_as_the_predictions_are(mine):
    got = s.read_submission(mine)
    assert set(got.files) == {'system.json', 'runs.json', 'ml_test.jsonl', 'mix_test.jsonl'} and set(got.predictions) == {'ml_test', 'mix_test'}
    assert (got.predictions['ml_test'].probs == frozen('mine', 'ml_test', mine.parents[1]).probs).all()
    assert s.all_scores(got)['ml_test']['accuracy'] == pytest.approx(scores(got.predictions['ml_test'])['accuracy'])

def test_standing_is_that_of_the_board(mine):
    got = s.read_submission(mine)
    x = s.standing(got)
    board = read_board('ml_test', extra=[(got.card, got.predictions['ml_test'])])
    row = next(r for r in board.rows() if r['slug'] == 'mine')
    assert (x.accuracy, x.lo, x.hi, x.tier, x.rank_lo, x.rank_hi, x.track_rank) == tuple(row[k] for k in ('accuracy', 'lo', 'hi', 'tier', 'rank_lo', 'rank_hi', 'rank'))
    assert x.place == board.slugs.index('mine') + 1 and x.of == len(SYSTEMS) + 1
    at = board.slugs.index('mine')
    for i, c in enumerate(board.cards):
        if i == at: continue
        there = [k for k in ('better_than', 'worse_than', 'not_separated') if c.name in getattr(x, k)]
        apart = board.pairs.p_holm[at, i] < .01
        assert there == ['not_separated' if not apart else 'better_than' if board.pairs.difference[at, i] > 0 else 'worse_than']
    assert x.better_than and x.worse_than and not set(x.better_than) & set(x.worse_than)
    assert s.standing(got, 'en_test') is None
    text = s.standing_text(got, x)
    assert f'place {x.place} of {x.of}' in text and all(n in text for n in x.not_separated)

def test_ready_folder_is_valid_and_the_same_at_every_run(mine, tmp_path):
    got = s.read_submission(mine)
    s.write_ready(got, tmp_path/'a', s.standings(got)); first = tree(tmp_path/'a')
    s.write_ready(got, tmp_path/'a', s.standings(got))
    assert tree(tmp_path/'a') == first and set(first) == {'PULL_REQUEST.md', *(f'outputs/systems/mine/{n}' for n in [*got.files, 'submission.json'])}
    assert s.validate(tmp_path/'a'/'outputs'/'systems'/'mine') == ('mine', 5, 2, '')
    again = s.read_submission(tmp_path/'a'/'outputs'/'systems'/'mine')
    assert s.manifest(again) == first['outputs/systems/mine/submission.json'] == s.manifest(got)
    assert 'My model' in first['PULL_REQUEST.md'].decode()

def test_a_second_try_leaves_nothing_of_the_first(mine, tmp_path):
    s.write_ready(s.read_submission(mine), tmp_path/'a')
    (mine/'mix_test.jsonl').unlink()
    s.write_ready(s.read_submission(mine), tmp_path/'a')
    assert not (tmp_path/'a'/'outputs'/'systems'/'mine'/'mix_test.jsonl').exists()

def test_large_files_and_latency_pass(mine):
    p = mine/'ml_test.jsonl'
    (mine/'ml_test.jsonl.gz').write_bytes(gzip.compress(p.read_bytes(), mtime=0)); p.unlink()
    (mine/'latency.json').write_text('{"ms_per_item": 3.2, "batch": 16, "items": 64, "hardware": "a computer, 8 cores"}')
    assert s.read_submission(mine).predictions['ml_test'].hit.mean() > .8

def test_seeds_must_all_be_there(board_home):
    system = Toy('seeded', 'A', right_on(.9, 's'), seeds=[3, 5]); system.card.exposure = 'none'
    out = board_home/'o'
    for seed in (3, 5): evaluate(system, 'ml_test', out, seed=seed)
    folder = out/'systems'/'seeded'
    got = s.read_submission(folder)
    assert set(got.predictions) == {'seed-3/ml_test', 'seed-5/ml_test'} and s.standing(got).items == 240
    shutil.copytree(folder/'seed-5', folder/'seed-7')
    assert 'seed' in fault(folder)
    shutil.rmtree(folder/'seed-7'); shutil.rmtree(folder/'seed-5')
    assert 'seed 5 has no predictions on ml_test' in fault(folder)
    edit(folder/'system.json', lambda r: r.update(seeds=[]))
    assert 'seed 3' in fault(folder)

def test_conditions_go_through(mine, board_home):
    from polyroute.stress import run as stress
    system = Toy('mine', 'A', right_on(.85, 'mine'), name='My model'); system.card.exposure = 'none'
    stress(system, 'ml_test', ['letters'], board_home/'mine_out')
    assert 'ml_test.letters' in s.read_submission(mine).predictions


# the card and the rules of its track

@pytest.mark.parametrize('change, words', [
    (dict(exposure=''), 'not stated'), (dict(exposure='Not stated'), 'not stated'), (dict(exposure='some rows'), 'begins with "none"'), (dict(training='train', training_rows=5), 'track A'), (dict(training='ml_test'), 'no training set'),
    (dict(track='B'), 'track B'), (dict(track='C'), 'track C'), (dict(track='C', training='train_ml', training_rows=9, exposure='none'), EXPOSURE['train_ml']), (dict(track='X'), 'track'), (dict(track=3), 'track'),
    (dict(slug='other'), 'the path and the card say'), (dict(slug='best'), 'belongs to a system'), (dict(slug='majority'), 'belongs to a system'), (dict(slug='../mine'), 'slug'), (dict(slug=''), 'slug'), (dict(slug='a'*99), 'slug'), (dict(name='BEST'), 'belongs to best'), (dict(name='ＢＥＳＴ'), 'belongs to best'), (dict(name=' '), 'empty'),
    (dict(name='<script>alert(1)</script>'), "'<'"), (dict(what='[x](javascript:alert(1))'), "'['"), (dict(what='`x`{=html}'), "'`'"), (dict(name='a\u202eb'), 'U+202E'), (dict(what='a\u2066b'), 'U+2066'), (dict(name='a\nb'), 'U+000A'), (dict(what='\x1b[31mred'), 'U+001B'), (dict(name='a\u200bb'), 'U+200B'), (dict(name='x'*81), '81 characters'),
    (dict(recipe={'key': 'sk-' + 'A1'*12}), 'secret'), (dict(recipe={'api': ['hf_' + 'a'*30]}), 'secret'), (dict(recipe={'weights': '/home/me/model.bin'}), 'path'), (dict(what='trained from C:\\Users\\me'), 'markup'), (dict(recipe={'a': 'C:\\Users\\me'}), 'path'), (dict(recipe=[1]), 'recipe'), (dict(recipe={'a': {'a': {'a': {'a': {'a': {'a': {'a': {'a': 1}}}}}}}}), 'deep'),
    (dict(version='other'), 'version'), (dict(recipe={'other': 1}), 'changed after the run'), (dict(training_rows=-1), 'training_rows'), (dict(training_rows=True), 'training_rows'), (dict(seeds=[1, 1]), 'seeds'), (dict(seeds=['1']), 'seeds'), (dict(seeds='1'), 'seeds'), (dict(packages={'torch': 2}), 'packages'), (dict(extra=1), "'extra'"), (dict(what=None), 'what')], ids=lambda x: str(x)[:40])
def test_cards_that_are_turned_back(mine, change, words):
    edit(mine/'system.json', lambda r: r.update(change))
    assert words in fault(mine)

@pytest.mark.parametrize('text', ['', '[]', '{', '{"slug": NaN}', '\ufeff{}', '{"name": "x"}', '[' * 5000, '{"slug": "\\ud800", "name": "a", "track": "A", "what": "b", "exposure": "none", "version": "1"}'])
def test_cards_that_are_none(mine, text):
    (mine/'system.json').write_text(text, encoding='utf-8')
    assert 'system.json' in fault(mine)

def test_joiners_and_every_script_may_stand_in_a_name():
    for name in ('नमस्ते क्‍ष', 'می‌خواهم', '模型 甲', 'Modèle n° 1, v2 (small)', 'ன்மொழி', 'موديل'): assert s.plain_text(name, 'name') == name

@fast
@given(st.text(max_size=30))
def test_plain_texts_are_harmless_wherever_they_stand(text):
    try: t = s.plain_text(text, 'x')
    except ValueError: return
    import html
    assert html.escape(t, quote=False).replace('&amp;', '&') == t and '\n' not in t and not set(t) & set('\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\x1b\r')

@fast
@given(st.text(max_size=30))
def test_messages_print(text):
    assert s.printable(text).isprintable() and (s.printable(text) == text) == text.isprintable()


# the folder

def test_links_are_refused(mine, tmp_path):
    (tmp_path/'secret.jsonl').write_text('{"secret": 1}')
    (mine/'en_test.jsonl').symlink_to(tmp_path/'secret.jsonl')
    assert 'en_test.jsonl: a link has no place' in fault(mine)
    (mine/'en_test.jsonl').unlink(); (mine/'seed-1').symlink_to(tmp_path, target_is_directory=True)
    assert 'seed-1: a link' in fault(mine)
    (mine/'seed-1').unlink(); (tmp_path/'link').symlink_to(mine)
    assert 'not a link' in fault(tmp_path/'link')
    (mine/'system.json').rename(tmp_path/'card.json'); (mine/'system.json').symlink_to(tmp_path/'card.json')
    assert 'system.json: a link' in fault(mine)

def test_a_file_that_becomes_a_link_between_two_looks_is_not_followed(mine, tmp_path):
    class Entry: path = str(tmp_path/'link')
    (tmp_path/'target').write_text('x'); (tmp_path/'link').symlink_to(tmp_path/'target')
    with pytest.raises(DataError, match='cannot be read'): s._read(Entry, 'ml_test.jsonl')

@pytest.mark.parametrize('name', ['model.pkl', 'model.bin', 'weights.npz', 'run.sh', '.hidden', 'README.md', 'ml_test.json', 'seed-x/ml_test.jsonl', 'other/ml_test.jsonl', 'human/deep/er/x.jsonl', 'seed-01/ml_test.jsonl', 'ML_TEST.jsonl', 'ml_test..jsonl', 'a\u202eb.jsonl', 'a\nb.jsonl', '..jsonl', 'systém.json'])
def test_other_files_have_no_place(mine, name):
    (mine/name).parent.mkdir(parents=True, exist_ok=True)
    (mine/name).write_text('x')
    assert 'no place in a submission' in (f := fault(mine)) and f.isprintable()

@pytest.mark.parametrize('name', ['../up.jsonl', '/etc/passwd', 'a/../../b.jsonl', 'seed-1/../../x.jsonl', './ml_test.jsonl', 'seed-1//ml_test.jsonl', 'ml_test.jsonl/', '..', ''])
def test_no_path_out_of_the_folder_is_a_name(name): assert not s.PREDICTIONS.fullmatch(name) and name not in s.OTHER_FILES

def test_names_in_the_files_are_never_opened(mine, tmp_path, monkeypatch):
    "A manifest and headers that point elsewhere: nothing outside the folder, the data and the board is read."
    (mine/'submission.json').write_text(json.dumps(dict(schema=1, files={'../../../../etc/passwd': 'x', '/etc/shadow': 'y'}, scores={})))
    opened, real = [], os.open
    monkeypatch.setattr(os, 'open', lambda p, *a, **k: (opened.append(str(p)), real(p, *a, **k))[1])
    assert s.validate(mine).fault and not [p for p in opened if 'etc' in p]
    for key, value in (('split', '../../secret'), ('suite', '../x'), ('system', '../y'), ('condition', '/etc')):
        lines = (mine/'mix_test.jsonl').read_text().split('\n')
        (mine/'mix_test.jsonl').write_text('\n'.join([json.dumps(json.loads(lines[0]) | {key: value}), *lines[1:]]))
        assert 'the header says' in fault(mine)
        (mine/'mix_test.jsonl').write_text('\n'.join(lines))

class Bomb:
    "What a malicious pickle would do."
    def __reduce__(self): return (os.system, ('touch pickled',))

def test_no_pickle_is_ever_loaded(mine, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    def no(*a, **k): raise AssertionError('a pickle was loaded')
    monkeypatch.setattr(pickle, 'loads', no); monkeypatch.setattr(pickle, 'load', no); monkeypatch.setattr(pickle, 'Unpickler', no)
    for name in ('model.pkl', 'ml_test.jsonl', 'system.json', 'runs.json'):
        before = (mine/name).read_bytes() if (mine/name).exists() else None
        (mine/name).write_bytes(pickle.dumps(Bomb()))
        assert name in fault(mine)
        (mine/name).unlink() if before is None else (mine/name).write_bytes(before)
    import io
    out = io.BytesIO(); np.save(out, np.array([Bomb()], dtype=object), allow_pickle=True)
    (mine/'ml_test.jsonl').write_bytes(out.getvalue())
    fault(mine)
    assert not (tmp_path/'pickled').exists()
    assert 'pickle' not in Path(s.__file__).read_text(encoding='utf-8').replace('a pickle, a script', '').replace('pickles', '')

@pytest.mark.skipif(not hasattr(os, 'mkfifo'), reason='a system with named pipes is needed')
def test_a_pipe_does_not_hold_the_reader(mine):
    os.mkfifo(mine/'en_test.jsonl')
    assert 'no regular file' in fault(mine)

def test_sizes_are_limited(mine, monkeypatch):
    bomb = gzip.compress(b'0' * 3_000_000)
    (mine/'en_test.jsonl.gz').write_bytes(bomb)
    monkeypatch.setitem(s.MOST, 'unpacked', 2_000_000)
    assert len(bomb) < 10_000 and 'unpacks to more than 2,000,000' in fault(mine)
    (mine/'en_test.jsonl.gz').write_bytes(gzip.compress(b'{}\n')[:-9])
    assert 'gzip' in fault(mine)
    (mine/'en_test.jsonl.gz').unlink()
    monkeypatch.setitem(s.MOST, 'file', 1000); assert 'larger than 1,000 bytes' in fault(mine)
    monkeypatch.undo()
    monkeypatch.setitem(s.MOST, 'folder', 9000); assert 'at most 9,000 bytes' in fault(mine)
    monkeypatch.undo()
    monkeypatch.setitem(s.MOST, 'files', 3); assert 'at most 3 files' in fault(mine)

def test_twice_the_same_file(mine):
    (mine/'ml_test.jsonl.gz').write_bytes(gzip.compress((mine/'ml_test.jsonl').read_bytes()))
    assert 'twice' in fault(mine)


# the predictions

@pytest.mark.parametrize('change, words', [
    (lambda l: l[:-2], 'missing'), (lambda l: l[:2] + l[1:], 'already'), (lambda l: [l[0], l[1].replace('i000', 'zzz'), *l[2:]], 'no such item'), (lambda l: [l[0], l[1].replace('0.', '1.'), *l[2:]], 'id'), (lambda l: [l[0].replace(json.loads(l[0])['data_sha256'], '0'*64), *l[1:]], 'other data'),
    (lambda l: [l[0].replace('"mine"', '"best"'), *l[1:]], "system 'best'"), (lambda l: [l[0].replace(json.loads(l[0])['version'], 'v9'), *l[1:]], "version 'v9'"), (lambda l: l[1:], 'header'), (lambda l: ['{"a": ' * 2000, *l], 'JSON'), (lambda l: [l[0][:-1] + ', "\\u202e\\u001b[2J": 1}', *l[1:]], 'unknown keys')], ids=range(10))
def test_predictions_that_are_turned_back(mine, change, words):
    lines = (mine/'ml_test.jsonl').read_text(encoding='utf-8').split('\n')
    (mine/'ml_test.jsonl').write_text('\n'.join(change(lines)), encoding='utf-8')
    f = fault(mine)
    assert words in f and 'ml_test.jsonl' in f and f.isprintable() and '/tmp' not in f, f

def test_training_files_and_unknown_splits_are_no_splits(mine, board_home):
    for name in ('train', 'whatever'):
        (mine/f'{name}.jsonl').write_bytes((mine/'ml_test.jsonl').read_bytes())
        assert f'{name} is no split' in fault(mine)
        (mine/f'{name}.jsonl').unlink()

def test_what_is_needed(mine):
    (mine/'ml_test.jsonl').rename(mine/'x'); (mine/'x').unlink()
    assert 'no predictions on ml_test' in fault(mine)
    for name in ('runs.json', 'system.json'):
        (mine/name).unlink()
        assert f'no {name}' in fault(mine)

def test_the_log_knows_every_file(mine):
    edit(mine/'runs.json', lambda r: r.pop('mix_test') and None)
    assert 'mix_test is not logged' in fault(mine)
    for bad in ('{"ml_test": 3}', '{"ml_test": [{"version": 1}]}', '{"ml_test": [{"version": "a\\u202eb", "data": "x"}]}', 'null'):
        (mine/'runs.json').write_text(bad)
        assert 'runs.json' in fault(mine)

def test_items_with_script_and_direction_controls_stay_text(home):
    "Texts of items never reach a submission's pages; ids do, in messages, and print."
    texts = ['<script>alert(1)</script>', '\u202eevil\u202c \u2066x\u2069', '<img src=x onerror=alert(1)>']
    items = toy_items(60, id=lambda i: f'{texts[i % 3]}-{i}', state=lambda i: texts[i % 3])
    write_jsonl(home/'data'/'ml_test.jsonl', (i.to_row() for i in items))
    system = Toy('mine', 'A', right_on(.8, 'm')); system.card.exposure = 'none'
    evaluate(system, 'ml_test', home/'o')
    folder = home/'o'/'systems'/'mine'
    got = s.read_submission(folder)
    page = report({'ml_test': read_board('ml_test', home/'out', extra=[(got.card, got.predictions['ml_test'])])}, 'html')
    ready = s.pull_request(got, s.standings(got, home/'out')) + s.manifest(got).decode()
    assert '<script' not in page + ready and '<img' not in page + ready and '\u202e' not in page + ready
    lines = (folder/'ml_test.jsonl').read_text(encoding='utf-8').split('\n')
    for drop in (1, 2):
        (folder/'ml_test.jsonl').write_text('\n'.join(lines[:drop] + lines[drop + 1:]), encoding='utf-8')
        assert fault(folder).isprintable()


# validate

@pytest.fixture
def ready(mine, board_home):
    s.write_ready(s.read_submission(mine), board_home/'repo')
    return board_home/'repo'/'outputs'/'systems'/'mine'

def test_any_change_is_found(ready):
    assert s.validate(ready).fault == ''
    sound = tree(ready)
    def put(name, data): (ready/name).write_bytes(data); found = s.validate(ready).fault; (ready/name).write_bytes(sound[name]); return found
    lines = sound['ml_test.jsonl'].split(b'\n')
    swapped = json.loads(lines[5]); p = swapped['probabilities']; lo, hi = min(p, key=p.get), max(p, key=p.get); p[lo], p[hi] = p[hi], p[lo]
    assert 'ml_test' in put('ml_test.jsonl', b'\n'.join([*lines[:5], json.dumps(swapped).encode(), *lines[6:]]))
    m = json.loads(sound['submission.json']); m['scores']['ml_test']['accuracy'] += 1e-9*0 + .001
    assert 'scores / ml_test / accuracy' in put('submission.json', json.dumps(m).encode())
    m = json.loads(sound['submission.json'])
    assert 'another form' in put('submission.json', json.dumps(m).encode())
    assert 'submission.json' in put('submission.json', b'{}') and 'submission.json' in put('submission.json', b'null')
    (ready/'latency.json').write_bytes(b'{"ms_per_item": 1}'); assert 'files / latency.json' in s.validate(ready).fault
    (ready/'latency.json').unlink(); assert s.validate(ready).fault == ''
    ready.rename(ready.with_name('other')); assert 'named' in s.validate(ready.with_name('other')).fault

def test_all_submissions_of_a_folder(ready, board_home):
    root = board_home/'repo'/'outputs'
    assert [(c.slug, c.fault) for c in s.validate_all(root)] == [('mine', '')]
    shutil.copytree(board_home/'out'/'systems'/'best', root/'systems'/'best')         # the project's own: no submission.json
    (root/'systems'/'link').symlink_to(root/'systems'/'best')
    (root/'systems'/'loose.txt').write_text('x')
    shutil.copytree(root/'systems'/'mine', root/'systems'/'copy')
    found = {c.slug: c.fault for c in s.validate_all(root)}
    assert set(found) == {'mine', 'link', 'loose.txt', 'copy'} and not found.pop('mine') and all(found.values())
    assert 'no submission.json' in s.validate(shutil.copytree(board_home/'mine_out'/'systems'/'mine', board_home/'x'/'mine')).fault

def test_frozen_slugs_are_taken_and_those_of_submissions_are_not(mine, ready, board_home):
    assert {x for x, *_ in SYSTEMS} < s.own_systems() and 'mine' not in s.own_systems()
    frozen_ = board_home/'out'/'systems'/'mine'
    shutil.copytree(mine, frozen_)
    assert 'mine' in s.own_systems() and 'mine' not in s.own_systems(frozen_)        # evaluated straight into the outputs: its own
    assert 'belongs to a system' in fault(mine) and s.read_submission(frozen_).card.slug == 'mine'
    shutil.copy(ready/'submission.json', frozen_)
    assert 'mine' not in s.own_systems() and s.validate(ready).fault == ''

def test_submissions_in_this_repository_are_valid():
    assert [c for c in s.validate_all() if c.fault] == []

def test_every_frozen_system_of_this_repository_is_taken():
    assert {c.slug for c in cards() if not (outputs_dir()/'systems'/c.slug/'submission.json').exists()} <= s.own_systems()


# CLI

def test_submit_from_start_to_end(mine, tmp_path):
    out = run('submit', mine, '--out', tmp_path/'ready')
    assert 'in order' in out and 'would stand at place' in out and 'not separated from' in out and 'ready for a pull request' in out
    assert (tmp_path/'ready'/'outputs'/'systems'/'mine'/'submission.json').is_file()
    assert 'valid' in run('validate', tmp_path/'ready'/'outputs'/'systems'/'mine')
    found = json.loads(run('submit', mine, '--out', tmp_path/'ready', '--json'))
    assert found['slug'] == 'mine' and found['standings'][0]['split'] == 'ml_test' and found['scores']['ml_test']['items'] == 240

def test_submit_says_what_is_wrong(mine, tmp_path):
    edit(mine/'system.json', lambda r: r.update(exposure='not stated'))
    out = run('submit', mine, '--out', tmp_path/'ready', code=1)
    assert out.startswith('Error: system.json') and not (tmp_path/'ready').exists()
    assert 'Error' in run('submit', mine/'nowhere', code=2)

def test_validate_exit_codes(mine, tmp_path):
    run('submit', mine, '--out', tmp_path/'ready')
    assert json.loads(run('validate', '--root', tmp_path/'ready'/'outputs', '--json')) == [dict(slug='mine', files=5, scores=2, fault='')]
    (tmp_path/'ready'/'outputs'/'systems'/'mine'/'submission.json').write_text('{}')
    assert 'fault' in run('validate', '--root', tmp_path/'ready'/'outputs', code=1)

def test_validate_needs_systems(tmp_path):
    assert 'Error' in run('validate', '--root', tmp_path, code=1)

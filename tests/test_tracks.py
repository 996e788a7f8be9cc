"Training on a tiny encoder: the same weights after a kill, the same answers in a new process, and nothing of a test split."
import json, os, signal, subprocess, sys, textwrap, time
from dataclasses import replace
import numpy as np
import pytest
from polyroute import items, systems, tracks
from polyroute.items import DEPARTMENT, SPLITS, DataError, load, sha256

SMALL = dict(epochs=3, shuffle_from=2, one_question=False, freeze_layers=0., dropout=True, batch=8, pool=2, precision='fp32', head_max_len=192, max_len=256)
RECIPES = {k: replace(r, **SMALL) for k, r in tracks.RECIPES.items()}
RECIPE = RECIPES['laya']

@pytest.fixture(scope='module')
def tiny(tmp_path_factory):
    "A run on a tiny encoder, and the rows of a few steps."
    from polyroute.laya import tiny_encoder
    import torch
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp('tiny')
    os.environ['POLYROUTE_CACHE'] = str(folder/'cache')
    rows = load('train')
    some = rows.select(np.r_[0:40, 800:840])          # department rows and typed rows of all three types
    assert {i.question.type for i in some} == {'choice', 'score', 'noul'}
    yield tracks.Run('tiny', 'Tiny', str(tiny_encoder(folder/'encoder', rows.states[:300])), 'train', 'B', 'none'), some, folder
    del os.environ['POLYROUTE_CACHE']

@pytest.fixture(scope='module', params=['laya', 'biencoder'])
def kind(request): return request.param

@pytest.fixture(scope='module')
def trained(tiny, kind):
    run, rows, folder = tiny
    return tracks.train(run, 1, RECIPES[kind], folder/f'plain-{kind}', rows)

def test_log_and_temperatures(trained, kind):
    log = json.loads((trained/'polyroute.json').read_text())
    assert [h['epoch'] for h in log['history']] == [1, 2, 3] and log['recipe']['model'] == kind
    assert log['sha256'] == sha256(trained/'model.safetensors')
    if kind == 'laya':
        cfg = json.loads((trained/'rl_agent_config.json').read_text())
        assert all(t > 0 for t in cfg['temperature']) and cfg['max_len'] == 256
    else: assert set(log['biencoder']['temperatures']) <= {'choice', 'score', 'noul'} and all(t > 0 for t in log['biencoder']['temperatures'].values())

def test_same_seed_same_weights_other_seed_others(tiny, trained, kind):
    run, rows, folder = tiny
    again = tracks.train(run, 1, RECIPES[kind], folder/f'again-{kind}', rows)
    other = tracks.train(run, 2, RECIPES[kind], folder/f'other-{kind}', rows)
    assert sha256(again/'model.safetensors') == sha256(trained/'model.safetensors') != sha256(other/'model.safetensors')

def test_finished_run_is_kept(tiny, trained, kind):
    run, rows, folder = tiny
    before = (trained/'model.safetensors').stat().st_mtime_ns
    assert tracks.train(run, 1, RECIPES[kind], folder/f'plain-{kind}', rows) == trained
    assert (trained/'model.safetensors').stat().st_mtime_ns == before

@pytest.mark.parametrize('stop', [3, 10, 25])
def test_interrupted_anywhere_ends_in_the_same_weights(tiny, trained, kind, stop):
    run, rows, folder = tiny
    here = folder/f'stopped-{kind}-{stop}'
    steps = 0
    def die(done, total, loss):
        nonlocal steps
        steps += 1
        if steps == stop: raise KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt): tracks.train(run, 1, RECIPES[kind], here, rows, die)
    assert not (here/'checkpoint').exists()
    assert sha256(tracks.train(run, 1, RECIPES[kind], here, rows)/'model.safetensors') == sha256(trained/'model.safetensors')

def test_killed_process_ends_in_the_same_weights(tiny, trained, kind):
    run, rows, folder = tiny
    code = textwrap.dedent(f'''
        import sys, time, torch, numpy as np
        torch.set_num_threads(1)
        from dataclasses import replace
        from polyroute import tracks
        from polyroute.items import load
        recipe = replace(tracks.RECIPES[{kind!r}], **{SMALL!r})
        def slow(done, total, loss): print(done, flush=True); time.sleep(.05)
        tracks.train(tracks.Run(*{tuple(run)!r}), 1, recipe, {str(folder/f'killed-{kind}')!r}, load('train').select(np.r_[0:40, 800:840]), slow)
    ''')
    p = subprocess.Popen([sys.executable, '-c', code], stdout=subprocess.PIPE, text=True)
    while p.stdout.readline() and not (folder/f'killed-{kind}'/'state.pt').is_file(): pass
    for _ in range(3): p.stdout.readline()
    p.send_signal(signal.SIGKILL); p.wait()
    assert (folder/f'killed-{kind}'/'state.pt').is_file() and not (folder/f'killed-{kind}'/'checkpoint').exists()
    from pathlib import Path
    made = tracks.train(run, 1, RECIPES[kind], Path(folder/f'killed-{kind}'), rows)
    assert sha256(made/'model.safetensors') == sha256(trained/'model.safetensors')

def test_new_process_gives_the_same_probabilities(trained):
    code = f'''
import torch; torch.set_num_threads(1)
from pathlib import Path
from polyroute.items import DEPARTMENT, load
from polyroute.tracks import Run, run_card, trained_system
print(trained_system(Path({str(trained)!r}), run_card(Run('tiny', 'Tiny', 'x', 'train', 'B', 'none'))).predict(load('train').states[:5], DEPARTMENT).tolist())'''
    there = {}
    exec(code.replace('print(', 'there.update(p='), dict(there=there))
    here = np.array(there['p'])
    there = json.loads(subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, check=True).stdout.splitlines()[-1])
    assert np.array_equal(here, np.array(there))

def test_parallel_layout_does_not_depend_on_option_order(tiny):
    from polyroute.items import Question
    from polyroute.laya import Laya
    run, rows, folder = tiny
    made = tracks.train(run, 1, replace(RECIPE, layout='parallel', calibration=0.), folder/'parallel', rows)
    s, texts = Laya(made, device='cpu', threads=1), rows.states[:6]
    turned = Question(DEPARTMENT.name, DEPARTMENT.type, DEPARTMENT.instructions, DEPARTMENT.criteria[1:] + DEPARTMENT.criteria[:1])
    assert np.allclose(s.predict(texts, turned)[:, [2, 0, 1]], s.predict(texts, DEPARTMENT), atol=1e-5)

def test_training_reads_no_test_split(tiny, monkeypatch):
    "Every file that training opens through the data layer is a training file."
    run, rows, folder = tiny
    opened, read = [], items.read_items
    monkeypatch.setattr(items, 'read_items', lambda path, *a, **k: opened.append(str(path)) or read(path, *a, **k))
    monkeypatch.setattr(systems, 'load', items.load)
    for kind in tracks.TRAININGS.values(): kind(run.encoder, systems.training_set('train_typed').select(np.arange(20)), 1, RECIPE)
    for r in tracks.RUNS.values(): systems.training_set(r.rows); tracks.run_card(r)
    assert opened and not [p for p in opened for s in SPLITS if p.endswith(f'{s}.jsonl')]

def test_no_training_row_is_a_test_text():
    held = {s for name in SPLITS for s in load(name).states}
    for name in systems.TRAINING_SETS: assert not held & set(systems.training_set(name).states)

@pytest.mark.parametrize('name', [*SPLITS, 'nonsense'])
def test_no_other_file_is_a_training_set(name):
    with pytest.raises(DataError, match='is no training set'): systems.training_set(name)

def test_training_sets_hold_what_their_cards_say():
    native = lambda n: [i for i in systems.training_set(n) if i.meta.get('source') == 'native']
    assert len(native('train')) == 0 and len(native('train_ml')) == 1080
    assert {i.meta['language'] for i in native('train_ml_ho')} == set(items.TWELVE) - set(items.WITHHELD)
    assert {i.id for i in native('train_ml_25')} < {i.id for i in native('train_ml_50')} < {i.id for i in native('train_ml')}
    for free in ('train_free', 'train_ml_ho_free'): assert 'generic' not in set(systems.training_set(free).field('source'))
    assert set(systems.training_set('train_typed').field('source')) == {'typed'}

def test_option_list_that_does_not_fit(tiny):
    from polyroute.items import Dataset, Item, Question
    run, rows, folder = tiny
    wide = Question('wide', 'choice', 'Which?', tuple((f'the same long beginning of option {i}', '') for i in range(70)))
    with pytest.raises(DataError, match="id 'w'.*cannot be trained on this row"): tracks.LayaTraining(run.encoder, Dataset('d', [Item('w', 'text', wide, wide.options[0])]), 1, RECIPE)

def test_full_disk_leaves_nothing_half_written(tiny, kind, monkeypatch):
    import torch
    run, rows, folder = tiny
    def full(*a, **k): raise OSError(28, 'No space left on device')
    monkeypatch.setattr(torch, 'save', full)
    with pytest.raises((OSError, DataError), match='(?i)no space|disk is full'): tracks.train(run, 1, RECIPES[kind], folder/f'full-{kind}', rows)
    monkeypatch.undo()
    assert not (folder/f'full-{kind}'/'checkpoint').exists() and not (folder/f'full-{kind}'/'state.pt').exists()

def test_frozen_run_is_evaluated_with_its_seed(tiny, trained, kind, tmp_path):
    run, rows, folder = tiny
    did = tracks.freeze(run, 1, RECIPES[kind], tmp_path, folder/f'plain-{kind}', splits=('en_test',))
    assert did == ['computed']
    from polyroute.predictions import frozen
    assert frozen('tiny', 'en_test', tmp_path, seed=1).probs.shape == (90, 3)
    log = json.loads((tmp_path/'systems/tiny/seed-1/training.json').read_text())
    assert log['sha256'] == sha256(trained/'model.safetensors') and log['rows_per_second'] > 0

def test_biencoder_does_not_depend_on_option_order(tiny):
    from polyroute.items import Question
    run, rows, folder = tiny
    s = tracks.trained_system(tracks.train(run, 1, RECIPES['biencoder'], folder/'plain-biencoder', rows), tracks.run_card(run, RECIPES['biencoder']))
    turned = Question(DEPARTMENT.name, DEPARTMENT.type, DEPARTMENT.instructions, DEPARTMENT.criteria[1:] + DEPARTMENT.criteria[:1])
    assert np.allclose(s.predict(rows.states[:6], turned)[:, [2, 0, 1]], s.predict(rows.states[:6], DEPARTMENT), atol=1e-5)

def test_one_question_a_text_in_turn(tiny):
    run, rows, folder = tiny
    t = tracks.LayaTraining(run.encoder, rows, 1, replace(RECIPE, one_question=True))
    states = [r.state for r in t.rows]
    epochs = [t.chosen(e) for e in range(3)]
    for e in epochs: assert sorted({states[n] for n in e}) == sorted(set(states)) and len(e) == len(set(states))
    assert set(sum(epochs, [])) == {n for n, s in enumerate(states) if states.count(s) <= 3}

def test_frozen_layers_stay(tiny):
    import torch
    run, rows, folder = tiny
    t = tracks.BiEncoderTraining(run.encoder, rows, 1, replace(RECIPES['biencoder'], freeze_layers=.5))
    before = {k: v.clone() for k, v in t.encoder.state_dict().items()}
    t.to('cpu')
    tracks.train_epoch(t, *tracks._optimiser(t), 0, 1)
    changed = {k for k, v in t.encoder.state_dict().items() if not torch.equal(v, before[k])}
    assert changed and all('layer.1.' in k or 'pooler' in k for k in changed)


@pytest.mark.parametrize('one_question', [False, True])
def test_steps_are_the_batches_of_an_epoch(tiny, kind, one_question):
    run, rows, folder = tiny
    t = tracks.TRAININGS[kind](run.encoder, rows, 1, replace(RECIPES[kind], one_question=one_question))
    for epoch in range(3):
        made = t.batches(epoch, 7)
        assert t.steps(epoch) == len(made) and sum(map(t.count, made)) == t.size(epoch) == len(t.chosen(epoch))

def test_view_accuracy_counts_held_out_department_rows(tiny):
    run, rows, folder = tiny
    made = tracks.train(run, 1, RECIPES['biencoder'], folder/'plain-biencoder', rows)
    data = systems.training_set(run.rows)
    held = [r for r, h in zip(data, tracks.held_out([r.state for r in data], tracks.RECIPES[run.recipe])) if h and r.question.name == 'department']
    got = tracks.view_accuracy(run, 1, made)
    assert set(got) == {'as written', 'options by description', 'opaque option names'}       # the base rows have no text with a Latin view
    assert {n for _, n in got.values()} == {len(held)} and all(0 <= k <= n for k, n in got.values())
    p = tracks.trained_system(made, tracks.run_card(run, RECIPES['biencoder'])).predict([r.state for r in held], DEPARTMENT)
    assert got['as written'][0] == sum(DEPARTMENT.options[i] == r.gold for i, r in zip(p.argmax(1), held))


def test_average_is_the_mean_of_the_weights(tiny, tmp_path, monkeypatch):
    import torch
    from polyroute.biencoder import read_biencoder
    run, rows, _ = tiny
    monkeypatch.setenv('POLYROUTE_CACHE', str(tmp_path))
    a, b = run._replace(slug='part-a', recipe='biencoder'), run._replace(slug='part-b', recipe='views')
    mean = run._replace(slug='part-mean', recipe='views', averages=(('part-a', 1), ('part-b', 1)))
    monkeypatch.setattr(tracks, 'RUNS', tracks.RUNS | {r.slug: r for r in (a, b, mean)})
    monkeypatch.setattr(tracks, 'RECIPES', tracks.RECIPES | {k: replace(RECIPES['biencoder'], views=v) for k, v in (('biencoder', 0.), ('views', .5))})
    parts = [read_biencoder(tracks.train(r, 1, rows=rows))[0] for r in (a, b)]
    made = tracks.train(mean, 1)
    model, temperatures = read_biencoder(made)
    for k, v in model.encoder.state_dict().items():
        want = sum(p.encoder.state_dict()[k].double() for p in parts)/2
        assert torch.allclose(v.double(), want, atol=1e-6), k
    assert any(not torch.equal(x, y) for x, y in zip(parts[0].encoder.parameters(), parts[1].encoder.parameters()))      # the mean of two things
    assert torch.isclose(model.log_scale, (parts[0].log_scale + parts[1].log_scale)/2) and temperatures
    log = tracks.about(made)
    assert [p['run'] for p in log['averages']] == ['part-a', 'part-b'] and log['history'] == []
    assert tracks.run_card(mean).recipe['averages'] and 'averages' not in tracks.run_card(a).recipe
    assert tracks.freeze(mean, 1, root=tmp_path/'out', splits=['en_test']) == ['computed'] and tracks.training_log('part-mean', 1, tmp_path/'out')['rows_per_second'] is None
    with pytest.raises(DataError, match='mean of other runs'): tracks.with_encoder(mean, 'someone/else')

def test_selection_is_frozen_and_read_again(tiny, tmp_path, monkeypatch):
    run, rows, folder = tiny
    monkeypatch.setenv('POLYROUTE_CACHE', str(tmp_path/'cache'))
    a = run._replace(slug='candidate', recipe='biencoder')
    monkeypatch.setattr(tracks, 'RUNS', {'candidate': a})
    monkeypatch.setattr(tracks, 'RECIPES', tracks.RECIPES | dict(biencoder=RECIPES['biencoder']))
    tracks.train(a, 1, rows=rows)
    tracks.freeze_selection(tmp_path/'out', ['candidate'])
    got = tracks.read_selection(tmp_path/'out')
    assert got == {'candidate': tracks.view_accuracy(a, 1)} and tracks.best_candidate(got) == 'candidate'

def test_recipes_command(tmp_path, monkeypatch):
    from click.testing import CliRunner
    from polyroute.cli import main
    monkeypatch.setenv('POLYROUTE_OUTPUTS', str(tmp_path))
    r = CliRunner().invoke(main, ['recipes'])
    assert r.exit_code == 1 and '--freeze' in r.output
    found = {'a': dict(sha256='x', views={'as written': [1, 2], 'joined': [2, 2]}), 'b': dict(sha256='y', views={'as written': [2, 2], 'joined': [2, 2]})}
    items.write_atomic(tracks.selection_path(tmp_path), json.dumps(found))
    assert json.loads(CliRunner().invoke(main, ['recipes', '--json']).output)['chosen'] == 'b'
    out = CliRunner().invoke(main, ['recipes']).output
    assert 'chosen: b' in out and '50.0 (1 of 2)' in out

# settings of one's own

def test_a_changed_recipe_is_a_run_of_its_own():
    run = tracks.RUNS['english-base']
    other = tracks.with_recipe(run, dict(freeze_embeddings='false', epochs='6', encoder_lr='1', layout='sequential', precision='bf16'))
    assert other.settings == replace(run.settings, freeze_embeddings=False, epochs=6, encoder_lr=1., layout='sequential', precision='bf16') and other.rows == run.rows
    assert other.slug == f'english-base-{other.settings.version()}' != run.slug and 'epochs 6' in other.name
    assert tracks.run_card(other).recipe['command'] == 'polyroute train english-base --set freeze_embeddings=False --set epochs=6 --set encoder_lr=1.0 --set layout=sequential --set precision=bf16'
    again = tracks.with_recipe(run, dict(o.split('=') for o in other.options.split(' --set ')[1:]))
    assert again == other and tracks.run_card(run).recipe['command'] == 'polyroute train english-base'
    assert tracks.with_recipe(run, dict(epochs=run.settings.epochs)) is run and tracks.run_folder(other, 1) != tracks.run_folder(run, 1)
    both = tracks.with_recipe(tracks.with_encoder(run, 'owner/name'), dict(epochs=1))
    assert both.options == 'english-base --encoder owner/name --set epochs=1' and both.slug.startswith('english-base-name-')

@pytest.mark.parametrize('changes, message', [(dict(epoch='6'), "no setting 'epoch'; it has: .*epochs"), (dict(epochs='six'), "epochs is a whole number, not 'six'"), (dict(epochs='1.5'), 'epochs is a whole number'),
                                              (dict(dropout='maybe'), 'dropout is true or false'), (dict(dropout='1'), 'dropout is true or false'), (dict(clip='"x"'), 'clip is a number'), (dict(epochs='0'), 'epochs is at least 1, not 0'), (dict(batch='-1'), 'batch is at least 1'),
                                              (dict(warmup='5'), 'warmup is between 0 and 1'), (dict(precision='fp8'), "precision is 'auto' or 'bf16' or 'fp32', not 'fp8'"), (dict(layout='serial'), 'layout is'), (dict(head_lr='Infinity'), 'head_lr is above 0')])
def test_settings_that_cannot_be(changes, message):
    with pytest.raises(DataError, match=message): tracks.with_recipe(tracks.RUNS['multilingual-base'], changes)

def test_an_average_has_no_recipe_to_change():
    with pytest.raises(DataError, match='mean of other runs'): tracks.with_recipe(tracks.RUNS['biencoder-mean'], dict(epochs=1))

@pytest.mark.parametrize('calibration', [.1, 0.])
def test_training_without_a_look_at_the_tests(tiny, monkeypatch, calibration):
    "What recipes are chosen by: the command trains, says how the held-out rows are answered, and reads no test split."
    from click.testing import CliRunner
    from polyroute.cli import main
    run, rows, folder = tiny
    monkeypatch.setattr(tracks, 'RUNS', {'tiny': run._replace(recipe=replace(RECIPE, epochs=1))})
    monkeypatch.setattr(tracks, 'training_set', lambda name: rows)
    monkeypatch.setattr(tracks, 'evaluate', lambda *a, **kw: pytest.fail('a test split was read'))
    r = CliRunner().invoke(main, ['train', 'tiny', '--set', f'calibration={calibration}', '--set', 'max_len=200', '--no-evaluate'])
    assert r.exit_code == 0, r.output
    assert 'tiny-' in r.output and 'seed 1: loss ' in r.output and ('rows held out of training' if calibration else 'no rows were held out') in r.output
    r = CliRunner().invoke(main, ['train', 'tiny', '--set', 'epochs', '--no-evaluate'])
    assert r.exit_code == 1 and 'NAME=VALUE' in r.output

def test_training_with_latency(tiny, monkeypatch, tmp_path):
    from click.testing import CliRunner
    from polyroute.cli import main
    run, rows, folder = tiny
    monkeypatch.setattr(tracks, 'RUNS', {'tiny': run._replace(slug='tiny', recipe=replace(RECIPE, epochs=1))})
    monkeypatch.setattr(tracks, 'training_set', lambda name: rows)
    monkeypatch.setattr(tracks, 'evaluate', lambda *a, **kw: 'computed')
    r = CliRunner().invoke(main, ['train', 'tiny', '--latency', '--out', str(tmp_path)])
    assert r.exit_code == 0, r.output
    found = json.loads((tmp_path/'systems'/'tiny'/'latency.json').read_text())
    assert found['batch'] == 16 and found['items'] == 64 and found['ms_per_item'] > 0

def test_the_router_is_not_trained():
    from click.testing import CliRunner
    from polyroute.cli import main
    r = CliRunner().invoke(main, ['train', 'router-laya', '--no-evaluate'])
    assert r.exit_code == 2 and 'not trained itself' in r.output


# finding systems

def test_a_trained_entry_comes_from_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv('POLYROUTE_CACHE', str(tmp_path))
    with pytest.raises(DataError, match='polyroute train multilingual-native --seed 2'): tracks.find_system('multilingual-native', 2)
    folder = tracks.run_folder(tracks.RUNS['multilingual-native'], 2)/'checkpoint'
    folder.mkdir(parents=True)
    monkeypatch.setattr(tracks, 'trained_system', lambda f, card: (f, card.slug))
    assert tracks.find_system('multilingual-native', 2) == (folder, 'multilingual-native')
    assert tracks.find_system('tfidf-base').card.slug == 'tfidf-base'
    with pytest.raises(DataError, match='no system is registered'): tracks.find_system('nobody')

"Package metadata comes from settings.ini, the one place it is written."
import shutil
from configparser import ConfigParser
from pathlib import Path
from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

raw = ConfigParser(delimiters=['='])
raw.read('settings.ini', encoding='utf-8')
cfg = raw['DEFAULT']
licenses = dict(apache2='Apache-2.0')
statuses = dict(enumerate('Planning Pre-Alpha Alpha Beta Production/Stable'.split(), 1))

def lines(key): return [o.strip() for o in cfg.get(key, '').splitlines() if o.strip()]

# What an installed package shows for `data/` and `outputs/`: (folder here, folder in the package, patterns). Of the systems it carries cards, logs and the canonical predictions on the
# board's splits; stress conditions and the other suites grow with every system and stay in the repository. tests/test_wheel.py holds it under 5 MB.
SPLITS = 'ml_test', 'mix_test', 'en_test', 'ml_hard', 'boundary'
SMALL = 'audit', 'codemixed', 'confidence', 'encoders', 'languages', 'leakage', 'router', 'tracks', 'transfer'    # what the analyses read beside predictions
CARRIED = [('data', '_data', ['*.jsonl', 'SHA256SUMS', 'reference/*.json', 'schemas/*.jsonl', 'stress/*.jsonl', 'tokens/*', 'human/*.json']),
           ('outputs', '_outputs', ['systems/*/*.json', *(f'systems/*/{seed}{split}.jsonl{gz}' for seed in ('', 'seed-*/') for split in SPLITS for gz in ('', '.gz')),
                                    *(f'{d}/**/*.{kind}' for d in SMALL for kind in ('json', 'jsonl', 'jsonl.gz'))])]

class BuildPy(build_py):
    "Copy the released data and the frozen outputs into the package that is built, never into the source tree."
    def carried(self):
        root = Path(self.build_lib)/cfg['lib_path']
        for src, dst, globs in CARRIED:
            for f in sorted({o for g in globs for o in Path(src).glob(g) if o.is_file()}):
                yield f, root/dst/f.relative_to(src)

    def run(self):
        super().run()
        if self.editable_mode: return
        for src, dst in self.carried():
            dst.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(src, dst)

    def get_outputs(self, include_bytecode=True):
        return super().get_outputs(include_bytecode) + ([] if self.editable_mode else [str(o) for _, o in self.carried()])

setup(
    name=cfg['lib_name'], version=cfg['version'], description=cfg['description'], keywords=cfg['keywords'].split(),
    author=cfg['author'], license=licenses[cfg['license']], url=cfg['git_url'],
    long_description=Path('README.md').read_text(encoding='utf-8') if Path('README.md').exists() else '',
    long_description_content_type='text/markdown',
    packages=find_packages(include=[cfg['lib_path'], cfg['lib_path'] + '.*']), include_package_data=True,
    classifiers=[f"Development Status :: {cfg['status']} - {statuses[int(cfg['status'])]}",
                 f"Intended Audience :: {cfg['audience']}", f"Natural Language :: {cfg['language']}",
                 'Programming Language :: Python :: 3',
                 *(f'Programming Language :: Python :: {o}' for o in cfg['pythons'].split()),
                 'Topic :: Scientific/Engineering :: Artificial Intelligence', 'Topic :: Text Processing :: Linguistic'],
    python_requires='>=' + cfg['min_python'],
    install_requires=lines('requirements'),
    extras_require={o: lines(f'{o}_requirements') for o in cfg['extras'].split()},
    entry_points={'console_scripts': lines('console_scripts'), 'polyroute.systems': lines('systems'),
                  'nbdev': [f"{cfg['lib_path']}={cfg['lib_path']}._modidx:d"]},
    cmdclass=dict(build_py=BuildPy), zip_safe=False)

// The statistics of polyroute.metrics and polyroute.significance that need only counts of right and wrong answers.
// tests/test_site.py compares each function with the library's.

export const Z = 1.9599639845400536;   // of a 95% interval

// Wilson score interval of k right answers of n
export function wilson(k, n, z = Z) {
  const mid = (k + z*z/2) / (n + z*z);
  const half = z / (n + z*z) * Math.sqrt(k*(n - k)/Math.max(n, 1) + z*z/4);
  return [k === 0 ? 0 : Math.max(mid - half, 0), k === n ? 1 : Math.min(mid + half, 1)];
}

// Natural logarithm of the gamma function (Lanczos, g = 7)
const LANCZOS = [0.99999999999980993, 676.5203681218851, -1259.1392167224028, 771.32342877765313, -176.61502916214059,
  12.507343278686905, -0.13857109526572012, 9.9843695780195716e-6, 1.5056327351493116e-7];
export function logGamma(x) {
  let a = LANCZOS[0];
  for (let i = 1; i < 9; i++) a += LANCZOS[i] / (x - 1 + i);
  const t = x + 6.5;
  return 0.5*Math.log(2*Math.PI) + (x - 0.5)*Math.log(t) - t + Math.log(a);
}

// Regularised incomplete beta function, by its continued fraction (Lentz)
export function incompleteBeta(a, b, x) {
  if (x <= 0) return 0;
  if (x >= 1) return 1;
  if (x > (a + 1)/(a + b + 2)) return 1 - incompleteBeta(b, a, 1 - x);
  const tiny = 1e-300;
  let c = 1, d = 1 - (a + b)*x/(a + 1);
  d = 1/(Math.abs(d) < tiny ? tiny : d);
  let h = d;
  for (let m = 1; m < 10000; m++) {
    let e = m*(b - m)*x/((a + 2*m - 1)*(a + 2*m));
    d = 1 + e*d; d = 1/(Math.abs(d) < tiny ? tiny : d);
    c = 1 + e/c; if (Math.abs(c) < tiny) c = tiny;
    h *= d*c;
    e = -(a + m)*(a + b + m)*x/((a + 2*m)*(a + 2*m + 1));
    d = 1 + e*d; d = 1/(Math.abs(d) < tiny ? tiny : d);
    c = 1 + e/c; if (Math.abs(c) < tiny) c = tiny;
    h *= d*c;
    if (Math.abs(d*c - 1) < 1e-15) break;
  }
  return h*Math.exp(logGamma(a + b) - logGamma(a) - logGamma(b) + a*Math.log(x) + b*Math.log1p(-x))/a;
}

// P(X <= k) of a binomial distribution with n trials
export function binomialBelow(k, n, p) {
  if (k < 0) return 0;
  if (k >= n) return 1;
  return incompleteBeta(n - k, k + 1, 1 - p);
}

// p-value of the exact McNemar test: b and c items that one system alone gets right
export function mcnemar(b, c) { return b + c === 0 ? 1 : Math.min(1, 2*binomialBelow(Math.min(b, c), b + c, .5)); }

// Holm-corrected p-values
export function holm(p) {
  const order = p.map((_, i) => i).sort((i, j) => p[i] - p[j] || i - j), out = new Array(p.length);
  let most = 0;
  order.forEach((i, rank) => { most = Math.max(most, p[i]*(p.length - rank)); out[i] = Math.min(1, most); });
  return out;
}

// Every pair of systems: items that the first, and the second alone gets right. hits: one array of 0 and 1 per system
export function allPairs(hits) {
  const pairs = [];
  for (let i = 0; i < hits.length; i++) for (let j = i + 1; j < hits.length; j++) {
    let b = 0, c = 0;
    const x = hits[i], y = hits[j];
    for (let n = 0; n < x.length; n++) { if (x[n] && !y[n]) b++; else if (y[n] && !x[n]) c++; }
    pairs.push({i, j, b, c, p: mcnemar(b, c)});
  }
  holm(pairs.map(q => q.p)).forEach((p, n) => { pairs[n].holm = p; });
  return pairs;
}

// Significance tiers, each anchored at its most accurate system
export function tiers(hits, pairs, alpha) {
  const right = hits.map(h => h.reduce((s, x) => s + x, 0)), tier = new Array(hits.length).fill(0);
  const apart = new Set(pairs.filter(q => q.holm < alpha).flatMap(q => [q.i*hits.length + q.j, q.j*hits.length + q.i]));
  const order = hits.map((_, i) => i).sort((i, j) => right[j] - right[i] || i - j);
  for (let t = 1; order.some(s => tier[s] === 0); t++) {
    const leader = order.find(s => tier[s] === 0);
    order.forEach(s => { if (tier[s] === 0 && !apart.has(leader*hits.length + s)) tier[s] = t; });
  }
  return tier;
}

// Largest count of the loser at which the test rejects among m discordant items; -1 if it never does
function critical(m, alpha) {
  let lo = -1, hi = Math.floor(m/2);
  while (lo < hi) {
    const mid = (lo + hi + 1) >> 1;
    if (mcnemar(mid, m - mid) < alpha) lo = mid; else hi = mid - 1;
  }
  return lo;
}

// Exact power of the exact McNemar test against several differences, at one share of discordant items
function powerAt(n, discordance, alpha) {
  const spread = 12*Math.sqrt(n*discordance*(1 - discordance)) + 12;
  const cases = [], first = Math.max(0, Math.trunc(n*discordance - spread)), last = Math.min(n, Math.trunc(n*discordance + spread));
  for (let m = first; m <= last; m++) {
    const logWeight = logGamma(n + 1) - logGamma(m + 1) - logGamma(n - m + 1)
      + (m ? m*Math.log(discordance) : 0) + (n - m ? (n - m)*Math.log1p(-discordance) : 0);
    const c = critical(m, alpha);
    if (c >= 0) cases.push([m, c, Math.exp(logWeight)]);
  }
  return difference => {
    const q = (1 + difference/discordance)/2;
    let power = 0;
    for (const [m, c, w] of cases) power += w*(binomialBelow(c, m, q) + binomialBelow(c, m, 1 - q));
    return Math.min(power, 1);
  };
}
export function mcnemarPower(n, discordance, difference, alpha) { return discordance ? powerAt(n, discordance, alpha)(difference) : 0; }

// Smallest difference that the exact McNemar test finds with the given power; null if there is none
export function detectable(n, discordance, alpha, power = .8) {
  if (!discordance) return null;
  const f = powerAt(n, discordance, alpha);
  if (f(discordance) < power) return null;
  let lo = 0, hi = discordance;
  while (hi - lo > 1e-7) { const mid = (lo + hi)/2; if (f(mid) >= power) hi = mid; else lo = mid; }
  return hi;
}

// Numbers as Python writes them: a tie goes to the even digit
export function fixed(x, digits) {
  if (x < 0 || Object.is(x, -0)) return `-${fixed(-x, digits)}`;
  const twice = x*2**(digits + 1);
  if (Number.isInteger(twice) && twice % 2 !== 0) {
    const below = Math.floor(x*10**digits);
    return ((below % 2 === 0 ? below : below + 1)/10**digits).toFixed(digits);
  }
  return x.toFixed(digits);
}
const missing = x => x === null || x === undefined || Number.isNaN(x);
export function number(x, digits = 3) { return missing(x) ? '–' : fixed(x, digits); }
export function percent(x, lo = null, hi = null) {
  if (missing(x)) return '–';
  return missing(lo) ? fixed(100*x, 1) : `${fixed(100*x, 1)} [${fixed(100*lo, 1)}–${fixed(100*hi, 1)}]`;
}
export function signed(x) { const t = fixed(x, 1); return t === '-0.0' ? '+0.0' : (t.startsWith('-') ? '' : '+') + t; }   // no minus before zero
export function small(p) { return p < .001 ? '< 0.001' : fixed(p, 3); }

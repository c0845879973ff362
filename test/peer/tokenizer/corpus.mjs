// The strings that tokenizers are compared on: the same on every run and machine. Each has
// a kind, so that a difference says what it is about.

// mulberry32: a 32-bit generator, so that no string depends on the engine's Math.random.
export function generator(seed) {
  let a = seed >>> 0;
  const next = () => {
    a = (a + 0x6d2b79f5) >>> 0;
    let t = a;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return (t ^ (t >>> 14)) >>> 0;
  };
  const below = (n) => next() % n;
  return { below, pick: (list) => list[below(list.length)], between: (lo, hi) => lo + below(hi - lo + 1) };
}

const sentences = [
  'The quick brown fox jumps over the lazy dog.', 'Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich.',
  "Voix ambiguë d'un cœur qui, au zéphyr, préfère les jattes de kiwis.", 'El pingüino Wenceslao hizo kilómetros bajo exhaustiva lluvia.',
  'Pchnąć w tę łódź jeża lub ośm skrzyń fig.', 'Příliš žluťoučký kůň úpěl ďábelské ódy.', 'Árvíztűrő tükörfúrógép.',
  'Flygande bäckasiner söka hwila på mjuka tuvor.', 'Sævör grét áðan því úlpan var ónýt.', 'Pijamalı hasta yağız şoföre çabucak güvendi.',
  'Съешь же ещё этих мягких французских булок, да выпей чаю.', 'Чуєш їх, доцю, га? Кумедна ж ти, прощайся без ґольфів!',
  'Ξεσκεπάζω την ψυχοφθόρα βδελυγμία.', 'Այբ, բեն, գիմ: Հայերեն տեքստ՝ թվերով 123։', 'ქართული ანბანი ლამაზია, არა?',
  'עברית נכתבת מימין לשמאל, גם עם נִקּוּד.', 'الْعَرَبِيَّةُ لُغَةٌ جَمِيلَةٌ، وأرقامها ٠١٢٣٤٥٦٧٨٩.', 'فارسی با «نیم‌فاصله» می‌نویسیم؛ ۱۲۳۴.', 'اُردو نستعلیق میں لکھی جاتی ہے۔',
  'हिन्दी में लिखा हुआ एक वाक्य, क्षत्रिय और ज्ञान।', 'বাংলা ভাষায় একটি বাক্য, সংখ্যা ১২৩।', 'ਪੰਜਾਬੀ ਵਿੱਚ ਇੱਕ ਵਾਕ।', 'ગુજરાતીમાં એક વાક્ય.', 'தமிழில் ஒரு வாக்கியம்.',
  'తెలుగులో ఒక వాక్యం.', 'ಕನ್ನಡದಲ್ಲಿ ಒಂದು ವಾಕ್ಯ.', 'മലയാളത്തിൽ ഒരു വാക്യം.', 'සිංහල භාෂාවෙන් වාක්‍යයක්.', 'ภาษาไทยไม่มีการเว้นวรรคระหว่างคำ', 'ພາສາລາວກໍ່ຄືກັນ',
  'ខ្មែរសរសេរដោយគ្មានចន្លោះ។', 'မြန်မာစာ ရေးသားခြင်း။', 'བོད་ཡིག་གི་ཚིག་གྲུབ།', 'አማርኛ ዓረፍተ ነገር፣ ቁጥር ፩፪፫።', 'ᏣᎳᎩ ᎦᏬᏂᎯᏍᏗ', 'ᐃᓄᒃᑎᑐᑦ',
  '我能吞下玻璃而不伤身体。', '我能吞下玻璃而不傷身體，真的！', '私はガラスを食べられます。それは私を傷つけません。', 'ｶﾞﾗｽ と ガラス、全角１２３ＡＢＣ', '나는 유리를 먹을 수 있어요. 그래도 아프지 않아요',
  'Tôi có thể ăn thủy tinh mà không hại gì.', 'ʻO ka ʻōlelo Hawaiʻi', 'Ìwọ̀ yóò rí i pé Yorùbá ní àmì ohùn.', 'ⴰⵎⴰⵣⵉⵖ ⵜⵓⵜⵍⴰⵢⵜ', 'ᠮᠣᠩᠭᠣᠯ ᠪᠢᠴᠢᠭ', '𐌲𐌿𐍄𐌹𐍃𐌺 𐍂𐌰𐌶𐌳𐌰', '𒀭𒈹 𒂗𒆤 𓀀𓂀𓆣', '𝕳𝖊𝖑𝖑𝖔 𝟙𝟚𝟛 ℌℯ𝓁𝓁ℴ ⅷ Ⅻ ½ ²³ ①⑳', 'ǅ ǈ ǋ ﬁ ﬂ ﬆ ß ẞ ı İ ſ K Å',
];

const emoji = ['😀', '🤷🏽‍♀️', '👨‍👩‍👧‍👦', '🏳️‍🌈', '🇩🇪🇯🇵', '☺️', '✈︎', '1️⃣', '#️⃣', '🫠', '❤️‍🔥', '🧑🏿‍🚀', '🏴󠁧󠁢󠁥󠁮󠁧󠁿', '♟', '🀄', '👍🏼', '🥲'];

const code = [
  'func main() {\n\tfmt.Println("hello, 世界")\n}\n', 'for (let i = 0; i < n; ++i) { a[i] ^= b[i] >>> 3; }', 'def f(x, *a, **k):\n    return x if x is not None else {**k}\n\n\n',
  '#include <stdio.h>\r\nint main(void) {\r\n    return 0;\r\n}\r\n', '<div class="a-b c_d" id=\'x\'>&nbsp;&lt;p&gt;</div><!-- note -->', 'SELECT * FROM "t" WHERE a <> \'it\'\'s\' AND b >= 1e-9;',
  '{"key": [1, 2.50, -3e+10, true, null], "nested": {"a": "\\u00e9\\n"}}', 'if [[ -n "${x:-}" ]]; then echo $((1<<4)) | sed -E \'s/[0-9]+/&&/g\'; fi', 'let x: Vec<&\'static str> = vec!["a", "b"]; // why?',
  '^(?:[^\\s@]+)@(?:[\\w-]+\\.)+[a-z]{2,}$', 'https://example.org:8080/a/b.html?q=1&r=%20x#frag', 'C:\\Users\\name\\file.txt', '\\begin{align} \\frac{\\partial f}{\\partial x} &= \\sum_{i=0}^{n} x_i^2 \\end{align}',
  '| a | b |\n|---|:-:|\n| 1 | 2 |\n', '```go\nx := 1\n```\n', 'x = "\\t\\"quoted\\""   # trailing   \n', '==== !!! ??? ... --- *** ___ ### $$$ %%% ^^^ &&& ~~~', '->=>=:=<=!====<>||&&++--**//', 'camelCaseHTTPServer snake_case_name kebab-case-name SCREAMING_CASE',
  'a\tb\t\tc\t\t\td\n\te\n\t\tf', 'class A<T extends B> { #p = this?.q ?? 0n; }', 'SGVsbG8sIHdvcmxkISBUaGlzIGlzIGJhc2U2NC4=', '0xDEADBEEF 0b1010 0o755 1_000_000 1e10 .5 5. 3.14159265358979',
];

const endings = ["'s", "'t", "'re", "'ve", "'m", "'ll", "'d"];
const variants = (c) => {
  const out = [c, c.toUpperCase(), "'" + c.slice(1, 2).toUpperCase() + c.slice(2), c.replace("'", '’'), c + 'x', c + '1', "'" + c, ' ' + c, c.slice(0, 2), c + c];
  return out;
};

const spaces = [' ', '  ', '   ', '\t', '\n', '\r\n', '\n\n', '\r', '\u00a0', '\u3000', '\u2003', '\u2028', '\u2029', '\u202f', '\u205f', '\u1680', '\v', '\f'];
const oddSpaces = ['\u0085', '\ufeff', '\u200b', '\u180e', '\u2060', '\u200d', '\u00ad'];
const words = ['a', 'I', 'word', 'Word', 'WORD', 'naïve', '12', '7', '!', '...', '("', "don't", 'été', 'Ж', '日本', '한국', 'x_1', '<', '|', 'ß', '٣', 'Ⅷ', '½', '😀'];

const digits = ['0', '7', '12', '345', '6789', '١٢٣٤', '१२', '１２３', '𝟘𝟙𝟚', 'Ⅻ', '½', '²', '①', '㊿', '万', '፩', '௰'];

const marks = ['\u0301', '\u0308', '\u0323', '\u0302', '\u0327', '\u0345', '\u05b4', '\u0651', '\u064b', '\u093c', '\u0e38', '\u3099', '\u20dd', '\u0338'];
const bases = ['e', 'a', 'o', 'u', 'A', 'S', 'd', 'q', 'か', 'は', 'क', 'ש', 'ب', 'ᄒ', '=', '1', '\u212b', '\u1e0b', '\u03c9', '가', '각', '\u1100\u1161', '\u1112\u1161\u11ab', '\u0958', '\u2126', '\ufb1d', '\u0344', '\u1fbe'];

// Ranges of code points by script or use; random strings are drawn from one or several.
const blocks = {
  ascii: [0x20, 0x7e], control: [0x01, 0x1f], latin1: [0x7f, 0xff], latinExt: [0x100, 0x24f], ipa: [0x250, 0x2af], modifiers: [0x2b0, 0x2ff], combining: [0x300, 0x36f],
  greek: [0x370, 0x3ff], cyrillic: [0x400, 0x52f], armenian: [0x530, 0x58f], hebrew: [0x590, 0x5ff], arabic: [0x600, 0x6ff], syriac: [0x700, 0x74f], devanagari: [0x900, 0x97f],
  bengali: [0x980, 0x9ff], tamil: [0xb80, 0xbff], telugu: [0xc00, 0xc7f], thai: [0xe00, 0xe7f], tibetan: [0xf00, 0xfff], myanmar: [0x1000, 0x109f], georgian: [0x10a0, 0x10ff],
  jamo: [0x1100, 0x11ff], ethiopic: [0x1200, 0x137f], khmer: [0x1780, 0x17ff], mongolian: [0x1800, 0x18af], latinAdditional: [0x1e00, 0x1eff], greekExt: [0x1f00, 0x1fff],
  punctuation: [0x2000, 0x206f], superscripts: [0x2070, 0x209f], currency: [0x20a0, 0x20cf], letterlike: [0x2100, 0x214f], numberForms: [0x2150, 0x218f], arrows: [0x2190, 0x21ff],
  math: [0x2200, 0x22ff], technical: [0x2300, 0x23ff], enclosed: [0x2460, 0x24ff], boxes: [0x2500, 0x25ff], symbols: [0x2600, 0x26ff], dingbats: [0x2700, 0x27bf], braille: [0x2800, 0x28ff],
  cjkPunctuation: [0x3000, 0x303f], kana: [0x3040, 0x30ff], bopomofo: [0x3100, 0x312f], cjk: [0x4e00, 0x9fff], cjkExtA: [0x3400, 0x4dbf], hangul: [0xac00, 0xd7a3], privateUse: [0xe000, 0xe0ff],
  compatibility: [0xf900, 0xfaff], presentation: [0xfb00, 0xfdff], halfwidth: [0xff00, 0xffef], specials: [0xfff0, 0xfffd], gothic: [0x10330, 0x1034f], cuneiform: [0x12000, 0x123ff], hieroglyphs: [0x13000, 0x1342f],
  mathAlphanumeric: [0x1d400, 0x1d7ff], emoji: [0x1f300, 0x1f64f], emojiMore: [0x1f680, 0x1f9ff], cjkExtB: [0x20000, 0x2a6df], tags: [0xe0020, 0xe007f], variation: [0xfe00, 0xfe0f], plane16: [0x10fff0, 0x10fffd],
};

// corpus returns [{kind, text}]; specials are the texts of the vocabulary's own special tokens.
export function corpus(specials) {
  const g = generator(20260701);
  const out = [];
  const add = (kind, text) => out.push({ kind, text });
  const times = (n, f) => { for (let i = 0; i < n; i++) f(i); };
  const from = (name) => { const [lo, hi] = blocks[name]; return String.fromCodePoint(g.between(lo, hi)); };
  const names = Object.keys(blocks);

  add('empty', '');
  for (const s of sentences) {
    add('sentence', s);
    add('sentence', ' ' + s);
    add('sentence', s.toUpperCase() + '\n' + s.toLowerCase());
    add('decomposed', s.normalize('NFD'));
  }
  times(100, () => add('sentence', [g.pick(sentences), g.pick(sentences)].join(g.pick(spaces))));

  for (const e of emoji) { add('emoji', e); add('emoji', `a${e}b ${e} ${e}${e}!`); }
  times(60, () => add('emoji', g.pick(emoji) + g.pick(['', ' ', 'x', '\u200d', '\ufe0f']) + g.pick(emoji) + g.pick(emoji)));

  for (const c of code) { add('code', c); add('code', '    ' + c.replaceAll('\n', '\n    ')); }
  times(100, () => add('code', g.pick(code) + g.pick(spaces) + g.pick(code)));

  for (const e of endings) for (const v of variants(e)) { add('contraction', 'he' + v + ' ok'); add('contraction', v); }
  for (const v of ["'ſ", "he'ſ x", "'ſo", "O'Neil's", "rock'n'roll", "''''s", "'Twas", "y'all'd've", "d'Artagnan", "'S 'LL'VE'Re'", "'\u0130", "'t\u0301", "'s\u0327", "5's", "é'll"]) add('contraction', v);

  for (const s of spaces) times(6, (i) => { add('space', s.repeat(i + 1)); add('space', 'a' + s.repeat(i + 1) + 'b'); add('space', s.repeat(i + 1) + '1!'); });
  times(250, () => { let t = ''; times(g.between(2, 9), () => { t += g.pick(g.below(2) ? spaces : words); }); add('space', t); });
  for (const s of oddSpaces) for (const w of ['a', '1', '!', ' ', '\n']) { add('odd space', s); add('odd space', w + s + w); add('odd space', s + s + w + ' ' + s); }
  for (const n of [7, 16, 31, 32, 33, 64, 100, 500]) for (const s of [' ', '\n', '\t', '\r\n', ' \n']) { add('space', s.repeat(n)); add('space', 'x' + s.repeat(n) + 'y'); }

  times(120, () => { let t = ''; times(g.between(1, 5), () => { t += g.pick(digits) + g.pick(['', '', '', ' ', '.', ',', '-', 'a']); }); add('number', t); });
  for (let n = 1; n <= 20; n++) add('number', '1234567890'.repeat(2).slice(0, n));

  for (let c = 0; c < 0x20; c++) { add('control', String.fromCharCode(c)); add('control', 'a' + String.fromCharCode(c) + 'b'); }
  for (const c of ['\x7f', '\x80', '\x9f', '\u202e', '\u2066', '\ufffe', '\ufffd', '\u0000\u0000']) { add('control', c); add('control', 'x' + c + ' ' + c + 'y'); }

  const looks = [...specials, '<|im_end|>', '<|eot_id|>', '<s>', '</s>', '<unk>', '<think>', '<0x0A>', '<0xFF>', '<bos>', '<|endoftext|>', '[INST]', '<<SYS>>', '▁', '▁▁', '▁the', 'Ġ', 'Ċ', 'Ġthe'];
  for (const l of new Set(looks)) add('special', l);
  times(300, () => {
    const s = g.pick(looks), t = g.pick(looks), k = g.below(8);
    add('special', k === 0 ? s.slice(0, -1) : k === 1 ? s.slice(1) : k === 2 ? s + t : k === 3 ? s.slice(0, 3) + s : k === 4 ? `user ${s} text` : k === 5 ? `${s}\n${g.pick(words)} ${t} ` : k === 6 ? s.replace(/[a-z]/, (c) => c.toUpperCase()) : `${s} ${s}  ${t}`);
  });

  for (const b of bases) times(4, () => { let t = b; times(g.between(1, 3), () => { t += g.pick(marks); }); add('marks', t); add('marks', `x${t} ${t}y`); });
  times(60, () => { let t = ''; times(g.between(2, 8), () => { t += g.pick(g.below(3) ? marks : bases); }); add('marks', t); });
  for (const n of [29, 30, 31, 32, 60, 90]) { add('marks', 'a' + '\u0301\u0323'.repeat(n / 2) + '\u0316'.repeat(n % 2) + 'b'); add('marks', 'z' + '\u0308'.repeat(n)); }

  for (const n of names) times(12, () => { let t = ''; times(g.between(1, 16), () => { t += from(n); }); add('random ' + n, t); });
  times(300, () => { let t = ''; const set = [g.pick(names), g.pick(names), 'ascii']; times(g.between(2, 24), () => { t += from(g.pick(set)); }); add('random mixed', t); });

  for (const n of [40, 60, 200, 1000, 5000]) {
    let t = '';
    times(n, () => { t += String.fromCharCode(97 + g.below(26)); });
    add('long', t);
    add('long', 'a'.repeat(n));
    add('long', 'ab'.repeat(n / 2));
    add('long', '我'.repeat(n));
    add('long', '='.repeat(n));
    add('long', sentences.join(' ').slice(0, n * 2).replace(/[\ud800-\udbff]$/, ''));
  }
  return out;
}

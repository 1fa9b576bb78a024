// Numbers, sizes and times as people read them: thousands separated, units named, what is unknown said to be.

export const UNKNOWN = "–";

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const clockTime = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const UNITS = ["B", "kB", "MB", "GB", "TB", "PB"];

export function count(number) {
  return number === null || number === undefined ? UNKNOWN : whole.format(number);
}

/** With its sign, for a difference. */
export function signed(number) {
  return number > 0 ? `+${count(number)}` : count(number).replace("-", "−");
}

/** "1 partition", "2 partitions". */
export function plural(number, word) {
  return `${count(number)} ${word}${number === 1 ? "" : "s"}`;
}

export function bytes(number) {
  if (number === null || number === undefined) return UNKNOWN;
  const step = number < 1000 ? 0 : Math.min(Math.floor(Math.log10(number) / 3), UNITS.length - 1);
  return `${short(number / 1000 ** step)} ${UNITS[step]}`;
}

export function seconds(number) {
  if (number === null || number === undefined) return UNKNOWN;
  return number < 1 ? `${short(number * 1000)} ms` : `${short(number)} s`;
}

/** Three digits that count. */
export function short(number) {
  return number >= 100 || Number.isInteger(number)
    ? whole.format(number)
    : number >= 10
      ? number.toFixed(1)
      : number.toFixed(2);
}

/** The time of day; the date only where it is another day. */
export function clock(epochMs) {
  const moment = new Date(epochMs);
  const time = clockTime.format(moment);
  return moment.toDateString() === new Date().toDateString() ? time : `${day(moment)} ${time}`;
}

/** To the millisecond, with the date. */
export function moment(epochMs) {
  const time = new Date(epochMs);
  return Number.isNaN(time.getTime())
    ? `${epochMs} ms`
    : `${day(time)} ${clockTime.format(time)}.${pad(time.getMilliseconds(), 3)}`;
}

function day(date) {
  return `${date.getFullYear()}-${pad(date.getMonth() + 1)}-${pad(date.getDate())}`;
}

function pad(number, digits = 2) {
  return String(number).padStart(digits, "0");
}

// Formatters of numbers, sizes and times: thousands separators, units, and a dash for unknown values.

export const UNKNOWN = "–";

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const clockTime = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const UNITS = ["B", "kB", "MB", "GB", "TB", "PB"];

export function count(number) {
  return number === null || number === undefined ? UNKNOWN : whole.format(number);
}

/** Format a difference with its sign. */
export function signed(number) {
  return number > 0 ? `+${count(number)}` : count(number).replace("-", "−");
}

/** Format a count with its noun: "1 partition", "2 partitions". */
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

/** Format a number with about three significant digits. */
export function short(number) {
  return number >= 100 || Number.isInteger(number)
    ? whole.format(number)
    : number >= 10
      ? number.toFixed(1)
      : number.toFixed(2);
}

/** Format the time of day, with the date only if it is not today. */
export function clock(epochMs) {
  const moment = new Date(epochMs);
  const time = clockTime.format(moment);
  return moment.toDateString() === new Date().toDateString() ? time : `${day(moment)} ${time}`;
}

/** Format a timestamp as date and time with milliseconds. */
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

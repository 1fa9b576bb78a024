// The user of the console: name and logout.

import { Refusal, Silence, post, toLogin } from "./api.js";
import { h } from "./dom.js";

/** Show the user's name in the header, with a button to log out if the login was by password. */
export function showUser() {
  const place = document.getElementById("user");
  const { name } = place.dataset;
  if (name === "") return;
  const hasSession = document.body.dataset.csrf !== "";
  place.replaceChildren(h("span", null, "user ", h("b", null, name)), hasSession ? h("button", { onclick: logOut }, "Log out") : "");
}

async function logOut() {
  try {
    await post("/v1/logout");
  } catch (failure) {
    if (!(failure instanceof Silence || failure instanceof Refusal)) throw failure;
    document.getElementById("notice").textContent = failure.message;
    return;
  }
  toLogin();
}

// Login page: sends the name and the password of a user, and opens the console with the session that it gets.

import { Refusal, Silence, post } from "./api.js";

const form = document.getElementById("form");
const name = document.getElementById("name");
const password = document.getElementById("password");
const error = document.getElementById("error");
const button = form.querySelector("button");

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  button.disabled = true;
  error.textContent = "";
  try {
    await post("/v1/login", { user: name.value, password: password.value });
    // The part of the address after the # names the view that was open before.
    location.replace(`/${location.hash}`);
  } catch (failure) {
    if (!(failure instanceof Silence || failure instanceof Refusal)) throw failure;
    error.textContent = failure.message;
    password.value = "";
    password.focus();
  } finally {
    button.disabled = false;
  }
});

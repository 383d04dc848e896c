/* The copy button of a console block copies its commands: no prompt, no output. */
document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-clipboard-target]")
  const block = button && button.closest(".language-console")
  if (!block) return
  const lines = block.querySelector("code").textContent.split("\n")
  let continued = false
  const commands = lines.filter((line) => {
    const kept = continued || line.startsWith("$ ")
    continued = kept && line.endsWith("\\")
    return kept
  })
  button.setAttribute("data-clipboard-text", commands.map((line) => line.replace(/^\$ /, "")).join("\n"))
}, true)

// The address of the page: a path below /console/ and the filters in its query, so that every view has a link.

const base = '/console'

class Route {
  path = $state('/')
  query = $state.raw(new URLSearchParams())

  constructor() {
    this.read()
    window.addEventListener('popstate', () => this.read())
    document.addEventListener('click', (e) => {
      const a = (e.target as Element | null)?.closest?.('a')
      if (!a || e.defaultPrevented || e.button !== 0 || e.metaKey || e.ctrlKey || e.shiftKey || e.altKey) return
      if (a.target || a.rel === 'external' || a.hasAttribute('download') || a.origin !== location.origin) return
      if (!a.pathname.startsWith(base + '/') || (a.hash && a.pathname === location.pathname)) return
      e.preventDefault()
      this.go(a.pathname.slice(base.length) + a.search)
    })
  }

  private read(): void {
    this.path = location.pathname.slice(base.length) || '/'
    this.query = new URLSearchParams(location.search)
  }

  go(to: string): void {
    history.pushState(null, '', base + to)
    this.read()
    window.scrollTo(0, 0)
    document.querySelector<HTMLElement>('main')?.focus({ preventScroll: true })
  }

  // set changes one word of the query, in place. It reads the address itself: an effect that sets a word must not run again
  // because of it.
  set(key: string, value: string): void {
    const q = new URLSearchParams(location.search)
    if ((q.get(key) ?? '') === value) return
    if (value) q.set(key, value)
    else q.delete(key)
    const text = q.toString()
    history.replaceState(null, '', location.pathname + (text ? '?' + text : ''))
    this.query = q
  }
}

export const route = new Route()

export function link(...parts: string[]): string {
  return base + '/' + parts.map(encodeURIComponent).join('/')
}

export function filtered(what: string, filter: string): string {
  return `${base}/${what}?filter=${encodeURIComponent(filter)}`
}
